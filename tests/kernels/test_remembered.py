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
def remembered(made, monkeypatch):
    monkeypatch.setattr(capture, "_in_graphs", {})

    def make(name):
        made.append(name)
        return torch.full((), float(len(made)))

    return Remembered(make, most=3)


def test_it_is_made_once(remembered, made):
    first = remembered("a", within=False)
    assert remembered("a", within=False) is first
    assert made == ["a"]
    assert capture._in_graphs == {}


def test_what_was_made_first_is_forgotten_first(remembered, made):
    for name in "abcad":
        remembered(name, within=False)
    assert len(remembered) == 3
    assert made == [*"abcd"]
    remembered("b", within=False)
    assert made == [*"abcd"]
    remembered("a", within=False)
    assert made == [*"abcda"]


def test_a_graph_takes_what_was_made_before_and_has_it_for_good(remembered):
    before = remembered("a", within=False)
    assert remembered("a", within=True) is before
    for name in "bcde":
        remembered(name, within=False)
    assert remembered("a", within=False) is not before
    assert list(capture._in_graphs.values()) == [before]


def test_what_a_graph_makes_is_its_own(remembered, made):
    inside = remembered("a", within=True)
    assert remembered("a", within=True) is not inside
    assert remembered("a", within=False) is not inside
    assert len(remembered) == 1
    assert made == [*"aaa"]
    assert capture._in_graphs == {}


@pytest.mark.parametrize("capturing", [False, True])
def test_a_number_is_remembered_outside_of_a_capture(monkeypatch, capturing):
    monkeypatch.setattr(capture, "_number", Remembered(capture._filled, most=3))
    monkeypatch.setattr(capture, "capturing", lambda device: capturing)
    first = number(0.5, CPU)
    assert (number(0.5, CPU) is first) == (not capturing)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool])
def test_numbers_of_one_value_differ_by_dtype(dtype):
    one = number(1, CPU, dtype)
    assert one.dtype == dtype
    assert one.item() == 1
    assert number(1, CPU, dtype) is one
