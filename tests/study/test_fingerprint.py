"""A problem whose loss has been changed has other records; the same loss made anew has the same."""

import functools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from equilibrate.study.fingerprint import described
from equilibrate.study.journal import read_records
from equilibrate.study.problems import BUILT_IN
from tests.study.small import problem

RESULTS = Path(__file__).parents[2] / "results" / "strong-damping"


class Scaled(nn.Module):
    """A loss with a number and a buffer, and another loss inside."""

    def __init__(self, by: float = 1.0, weight: float = 1.0, inner: nn.Module | None = None):
        super().__init__()
        self.by, self.inner = by, inner or nn.MSELoss()
        self.register_buffer("weight", torch.tensor(weight))

    def forward(self, output, targets):
        return self.by * self.weight * self.inner(output, targets)


class Called:
    """A loss that is no module, and one that is its method."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, output, targets):
        return self.by * functional.mse_loss(output, targets)

    def method(self, output, targets):
        return self(output, targets)


def closing(by, other=functional.mse_loss):
    """A function that takes a number from around it."""
    return lambda output, targets: by * other(output, targets)


WEIGHT = torch.tensor([1.0, 2.0])
CHANGED = {
    "number": (lambda: nn.HuberLoss(delta=1.0), lambda: nn.HuberLoss(delta=0.01)),
    "not in repr": (nn.CrossEntropyLoss, lambda: nn.CrossEntropyLoss(label_smoothing=0.1)),
    "tensor": (
        lambda: nn.CrossEntropyLoss(weight=WEIGHT),
        lambda: nn.CrossEntropyLoss(weight=2 * WEIGHT),
    ),
    "word": (nn.MSELoss, lambda: nn.MSELoss(reduction="sum")),
    "class": (nn.MSELoss, nn.L1Loss),
    "own number": (Scaled, lambda: Scaled(by=2.0)),
    "own buffer": (Scaled, lambda: Scaled(weight=2.0)),
    "inside": (
        lambda: Scaled(inner=nn.HuberLoss(delta=1.0)),
        lambda: Scaled(inner=nn.HuberLoss(delta=0.1)),
    ),
    "partial's function": (
        lambda: functools.partial(functional.mse_loss),
        lambda: functools.partial(functional.l1_loss),
    ),
    "partial's number": (
        lambda: functools.partial(functional.huber_loss, delta=1.0),
        lambda: functools.partial(functional.huber_loss, delta=0.1),
    ),
    "object": (lambda: Called(1.0), lambda: Called(2.0)),
    "method": (lambda: Called(1.0).method, lambda: Called(2.0).method),
    "closure": (lambda: closing(1.0), lambda: closing(2.0)),
    "closure's function": (lambda: closing(1.0), lambda: closing(1.0, functional.l1_loss)),
    "function": (lambda: functional.mse_loss, lambda: functional.l1_loss),
    "built-in": (lambda: torch.dist, lambda: torch.dot),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_loss_makes_another_problem(name):
    """Made anew it is the same: nothing in it is an address."""
    one, other = CHANGED[name]
    base = problem()
    prints = [replace(base, loss=make()).fingerprint for make in (one, one, other)]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("name", CHANGED)
def test_so_does_a_changed_error(name):
    one, other = CHANGED[name]
    assert described(one()) == described(one())
    base = problem()
    assert replace(base, error=one()).fingerprint != replace(base, error=other()).fingerprint


def test_functions_of_torch_keep_the_key_that_published_records_have():
    found = {r["fingerprint"] for r in read_records(RESULTS / "curves-like-recipe").values()}
    assert found == {BUILT_IN["curves-like-14"](None).fingerprint}


def test_what_refers_to_itself_ends():
    def loss(output: Tensor, targets: Tensor) -> Tensor:
        return loss(output, targets[1:]) if len(targets) > 1 else output.sum()

    assert described(loss) == described(loss)
