"""What is remembered on a device between steps, and what a captured graph takes of it."""

import pytest
import torch

from equilibrate.kernels import capture
from equilibrate.kernels.capture import Remembered, number

CPU = torch.device("cpu")


@pytest.fixture
def made():
    """Everything that was made, in order."""
    return []


@pytest.fixture
def remembered(made):
    def make(name, device):
        made.append(name)
        return torch.full((), float(len(made)), device=device)

    return Remembered(make, most=3)


@pytest.fixture
def capturing(monkeypatch):
    """A switch: on, all that happens is taken to be captured."""
    monkeypatch.setattr(capture, "_in_graphs", {})

    def switch(on):
        monkeypatch.setattr(capture, "capturing", lambda device: on)

    switch(False)
    return switch


def test_it_is_made_once(remembered, made, capturing):
    first = remembered("a", CPU)
    assert remembered("a", CPU) is first
    assert made == ["a"]
    assert capture._in_graphs == {}


def test_what_was_not_used_for_long_is_forgotten(remembered, made, capturing):
    for name in "abcad":
        remembered(name, CPU)
    assert len(remembered) == 3
    assert made == [*"abcd"]
    remembered("a", CPU)
    assert made == [*"abcd"]
    remembered("b", CPU)
    assert made == [*"abcdb"]


def test_a_graph_takes_what_was_made_before_and_has_it_for_good(remembered, made, capturing):
    before = remembered("a", CPU)
    capturing(True)
    assert remembered("a", CPU) is before
    capturing(False)
    for name in "bcde":
        remembered(name, CPU)
    assert remembered("a", CPU) is not before
    assert list(capture._in_graphs.values()) == [before]


def test_what_a_graph_makes_is_its_own(remembered, made, capturing):
    capturing(True)
    within = remembered("a", CPU)
    assert remembered("a", CPU) is not within
    capturing(False)
    assert remembered("a", CPU) is not within
    assert len(remembered) == 1
    assert made == [*"aaa"]
    assert capture._in_graphs == {}


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool])
def test_numbers_of_one_value_differ_by_dtype(dtype):
    one = number(1, CPU, dtype)
    assert one.dtype == dtype
    assert one.item() == 1
    assert number(1, CPU, dtype) is one
