"""What a stack cannot train is found before anything is trained, and the reason says which part."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from equilibrate.study.choose import Chooser
from equilibrate.study.methods import METHODS
from equilibrate.study.stackable import why_not_stackable
from tests.study.stacks import CPU, convolution, dense, regression, trials

mse = nn.functional.mse_loss


def with_model(*layers):
    return replace(regression(), model=lambda seed: nn.Sequential(*layers))


class Counting(nn.Module):
    """A layer whose output under vmap is not that of the network alone: it looks at its batch."""

    def forward(self, x):
        return x * (1 if x.is_contiguous() and not torch._C._functorch.is_batchedtensor(x) else 3)


class Reading(nn.Module):
    def forward(self, x):
        return x * float(x.detach().sum() > 0)


class Evaluating(nn.Linear):
    """Another output in evaluation mode, which errors are computed in."""

    def forward(self, x):
        return super().forward(x) * (1 if self.training else 3)


def _made_in_model(seed):
    class Own(nn.Linear):
        pass

    return Own(5, 1)


def _masked(output, targets):
    keep = targets < 5
    return mse(output[keep], targets[keep])


def _noisy(output, targets):
    return mse(output, targets + torch.randn_like(targets))


def _branching(output, targets):
    return mse(output, targets) if output.max() < 1e6 else nn.functional.l1_loss(output, targets)


def _raising(output, targets):
    raise KeyError  # whatever a function of the user's may raise


UNSTACKABLE = {
    "batch normalisation": (
        with_model(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), "buffers",
    ),
    "dropout": (
        with_model(nn.Linear(5, 4), nn.Dropout(), nn.Linear(4, 1)), "network draws random numbers",
    ),
    "control by value": (with_model(nn.Linear(5, 1), Reading()), "cannot stack the network"),
    "another output": (with_model(nn.Linear(5, 1), Counting()), "another loss than"),
    "another when evaluated": (with_model(Evaluating(5, 1)), "another error than"),
    "a frozen layer": (
        with_model(nn.Linear(5, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 1)),
        "frozen parameters",
    ),
    "a class of every network's own": (
        replace(regression(), model=_made_in_model), "models to be of the same class",
    ),
    "a masked loss": (replace(regression(), loss=_masked), "cannot stack the loss"),
    "a noisy loss": (replace(regression(), loss=_noisy), "loss draws random numbers"),
    "a loss by value": (replace(regression(), loss=_branching), "cannot stack the loss"),
    "a loss of one row": (
        replace(regression(), loss=lambda o, t: mse(o, t)[None]), "another loss than",
    ),
    "an error by item": (
        replace(regression(), error=lambda o, t: torch.tensor(mse(o, t).item())), "stack the error",
    ),
    "an error by numpy": (
        replace(regression(), error=lambda o, t: torch.tensor((o.numpy() - t.numpy()).std())),
        "cannot stack the error",
    ),
    "an error that fails": (replace(regression(), error=_raising), "stack the error (KeyError)"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSTACKABLE)
def test_a_problem_that_cannot_be_stacked_says_why(name):
    problem, words = UNSTACKABLE[name]
    assert words in why_not_stackable(problem, "float32", CPU)


class _Named(nn.Module):
    """Returns its output in a dictionary, as Hugging Face's models do."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(5, 1)

    def forward(self, x):
        return {"logits": self.inner(x)}


def _in_double():
    whole = regression()
    data = tuple(tensor.double() for tensor in whole.cases)
    return replace(whole, model=lambda seed: whole.model(seed).double(), data=lambda: data)


STACKABLE = {
    "dense": dense(),
    "convolution": convolution(),
    "regression": regression(),
    "a dictionary": replace(
        regression(), model=lambda seed: _Named(), loss=lambda o, t: mse(o["logits"], t)
    ),
    "data in double precision": replace(regression(), data=_in_double().data),
    "all in double precision": _in_double(),
    "not a number": replace(regression(), loss=lambda o, t: mse(o, t) * torch.nan),
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", STACKABLE)
def test_a_problem_that_can_be_has_no_reason_against_it(name, precision):
    assert why_not_stackable(STACKABLE[name], precision, CPU) is None


@pytest.mark.parametrize("at_once", [None, 1, 2])
@pytest.mark.parametrize("name", [*list(UNSTACKABLE)[:-1], *STACKABLE])
def test_whatever_is_decided_trains(name, at_once, tmp_path):
    """All but the error that fails however it is trained."""
    problem = STACKABLE.get(name) or UNSTACKABLE[name][0]
    made = Chooser(problem, METHODS, tmp_path, CPU, at_once)
    listed = trials("esgd", [{"lr": 0.01}, {"lr": 0.02}], "float32")
    for group in made.together(listed):
        trainer = made.make_trainer(group)
        trainer.advance(2)
        assert len(trainer.errors()) == len(group)
