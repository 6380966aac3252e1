"""Problems of another form than `Problem` asks for: one line that shows the right one."""

import sys

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from equilibrate.cli import main
from equilibrate.study import form
from tests.study.page import SMALL, said

UNREDUCED = """
from dataclasses import replace

from torch import nn

from wave import wave


def squares(output, targets):
    return (output - targets) ** 2


a_loss = replace(wave, loss=squares, error=nn.functional.mse_loss)
an_error = replace(wave, error=squares)
"""


@pytest.mark.parametrize(("name", "what"), [("a_loss", "loss"), ("an_error", "error")])
def test_what_is_not_one_number_is_told_before_training(name, what, here, capsys):
    (here / "unreduced.py").write_text(UNREDUCED)
    sys.modules.pop("unreduced", None)
    assert main(["compare", f"unreduced:{name}", *SMALL]) == 2
    told = f"wave: {what}(output, targets) must be one number, got (20, 1). Reduce it: .mean()"
    assert told in said(capsys)[-1]
    assert not (here / "out").exists()


FORMS = """
import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from equilibrate.study import Problem
from wave import data, model

dataset = TensorDataset(*data())
loader = DataLoader(dataset, batch_size=20)
two_batches = DataLoader(dataset, batch_size=500)


def wave_of(model=model, data=data, loss=nn.functional.mse_loss, error=None):
    return Problem("wave", model, data, loss, error, batch_size=20)


def seedless():
    return model(0)


class Net(nn.Sequential):
    def __init__(self, width=8):
        super().__init__(nn.Linear(1, width), nn.Linear(width, 1))


a_network = model(0)
makers = {
    "without_a_seed": lambda: wave_of(model=seedless),
    "a_class_for_a_model": lambda: wave_of(model=Net),
    "a_network_for_a_model": lambda: wave_of(model=model(0)),
    "no_network": lambda: wave_of(model=lambda seed: None),
    "a_loader": lambda: wave_of(data=lambda: loader),
    "a_loader_of_two": lambda: wave_of(data=lambda: two_batches),
    "a_dataset": lambda: wave_of(data=lambda: dataset),
    "a_loader_itself": lambda: wave_of(data=loader),
    "a_tuple_itself": lambda: wave_of(data=data()),
    "data_of_a_seed": lambda: wave_of(data=lambda seed: data()),
    "arrays": lambda: wave_of(data=lambda: (numpy.ones((40, 1)), numpy.ones((40, 1)))),
    "one_tensor": lambda: wave_of(data=lambda: torch.ones(40, 1)),
    "three": lambda: wave_of(data=lambda: (*data(), data()[0])),
    "numbers": lambda: wave_of(data=lambda: (torch.tensor(1.0), torch.tensor(1.0))),
    "a_class_for_a_loss": lambda: wave_of(loss=nn.MSELoss),
    "a_word_for_an_error": lambda: wave_of(error="mae"),
}
globals().update(makers)
"""

TENSORS = "it must return (inputs, targets), two tensors in memory"
FROM_LOADER = "`batches = list(loader)` and `inputs, targets = map(torch.cat, zip(*batches))`"
FROM_DATASET = "`loader = DataLoader(dataset, batch_size=100)`, `batches = list(loader)` and "
ILL_FORMED = {
    "without_a_seed": "called with a seed, which seedless() does not take; write def model(seed)",
    "a_class_for_a_model": "Net would take for its width; write model=lambda seed: Net()",
    "a_network_for_a_model": "give the function that makes it: model=model, not model=model(0)",
    "no_network": "model(seed) returned a NoneType; it must return a torch.nn.Module",
    "a_loader": FROM_LOADER,
    "a_loader_of_two": FROM_LOADER,
    "a_dataset": FROM_DATASET,
    "a_loader_itself": FROM_LOADER,
    "a_tuple_itself": "data is a tuple; it must be a function, data=lambda: (inputs, targets)",
    "data_of_a_seed": "data is called without arguments, which <lambda>(seed) needs; write def",
    "arrays": f"{TENSORS}: torch.as_tensor(array) makes one of an array",
    "one_tensor": f"data() returned a Tensor; {TENSORS}",
    "three": f"data() returned a tuple of Tensor, Tensor, Tensor; {TENSORS}",
    "numbers": "its first dimension must count cases",
    "a_class_for_a_loss": "give a loss of that class: loss=MSELoss()",
    "a_word_for_an_error": "error is a str; it must be a function, error(output, targets)",
    "model": "ill_formed:model is a function; it must be an equilibrate.study.Problem",
    "a_network": "ill_formed:a_network is a Sequential; it must be an equilibrate.study.Problem",
}


@pytest.mark.parametrize("name", ILL_FORMED)
@pytest.mark.parametrize("room", ["compare", "inspect"])
def test_a_problem_of_another_form_gets_one_line_with_the_right_one(room, name, here, capsys):
    (here / "ill_formed.py").write_text(FORMS)
    sys.modules.pop("ill_formed", None)
    assert main([room, f"ill_formed:{name}"]) == 2
    assert ILL_FORMED[name] in said(capsys)[-1]
    assert not (here / "out").exists()


INPUTS, TARGETS = torch.arange(250.0).unsqueeze(1), torch.arange(250.0).neg()


class Pairs(IterableDataset):
    """It has no length."""

    def __iter__(self):
        return iter(zip(INPUTS, TARGETS, strict=True))


class Named(IterableDataset):
    def __iter__(self):
        return ({"inputs": x, "targets": y} for x, y in zip(INPUTS, TARGETS, strict=True))


HELD = {
    "a dataset": TensorDataset(INPUTS, TARGETS),
    "a dataset without a length": Pairs(),
    "a dataset of dictionaries": Named(),
    "a loader": DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=20),
    "a loader without a length": DataLoader(Pairs(), batch_size=20),
    "a loader of dictionaries": DataLoader(Named(), batch_size=20),
}


@pytest.mark.parametrize("name", HELD)
def test_the_lines_that_make_tensors_do(name):
    """Those that the message quotes, without the last but one where batches are dictionaries."""
    lines = form.data_mistake(HELD[name]).split("`")[1::2]
    lines.pop(-2 if "dictionaries" in name else -1)
    made = {"torch": torch, "DataLoader": DataLoader, "dataset": HELD[name], "loader": HELD[name]}
    for line in lines:
        exec(line, made)
    assert torch.equal(made["inputs"], INPUTS)
    assert "dictionaries" in name or torch.equal(made["targets"], TARGETS)


FAILING = """
import torch
from torch import nn

from equilibrate.study import Problem

x = torch.ones(8, 3)
model = lambda seed: nn.Linear(3, 2)
loss = nn.functional.mse_loss
a_loss = Problem("p", model, lambda: (x, x), lambda o, t: o @ t, batch_size=4)
a_class = Problem("p", model, lambda: (x, torch.full((8,), 7)), nn.CrossEntropyLoss(), batch_size=4)
an_error = Problem("p", model, lambda: (x, x[:, :2]), loss, lambda o, t: o @ t, batch_size=4)
a_network = Problem("p", lambda seed: nn.Linear(2, 2), lambda: (x, x), loss, batch_size=4)
an_argument = Problem("p", model, lambda: (x, x), lambda o: o.sum(), batch_size=4)
"""
FAILURES = {
    "a_loss": "p: the loss cannot be computed from (4, 2) and (4, 3), one batch. The reason: mat1",
    "a_class": "p: the loss cannot be computed from (4, 2) and (4,), one batch. The reason: Target",
    "an_error": "p: the error cannot be computed from (4, 2) and (4, 2), one batch. The reason: ma",
    "a_network": "p: the network's output cannot be computed from (4, 3), one batch. The reason: ",
    "an_argument": "p: the loss cannot be computed from (4, 2) and (4, 3), one batch. The reason: ",
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_cannot_be_computed_gets_one_line_with_the_reason(name, here, capsys):
    (here / "failing.py").write_text(FAILING)
    sys.modules.pop("failing", None)
    assert main(["compare", f"failing:{name}"]) == 2
    assert FAILURES[name] in said(capsys)[-1]
    assert not (here / "out").exists()
