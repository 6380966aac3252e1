"""What is remembered of tensors that stay: gone as soon as they fill other memory, or otherwise."""

import pytest
import torch
from torch import nn

from equilibrate.kernels import lists
from equilibrate.kernels.lists import places_at_once


@pytest.fixture
def columns(monkeypatch):
    """Gradients, parameters and diagonals that one launch takes, seen in a step before."""
    monkeypatch.setattr(lists, "_rows", {})
    shapes = [(4, 4), (6,), (2, 3)]
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    found = [torch.randn(s) for s in shapes], parameters, [torch.rand(s) for s in shapes]
    assert places_at_once(*found) is not None
    return found


def test_what_stays_is_looked_at_once(columns, monkeypatch):
    before = places_at_once(*columns)
    monkeypatch.setattr(lists, "alike", None)  # not asked again
    gradients = [torch.randn_like(g) for g in columns[0]]
    found = places_at_once(gradients, *columns[1:])
    assert (found.sizes, found.kept) == (before.sizes, before.kept)
    assert found.gradients == tuple(g.data_ptr() for g in gradients)


def _transposed(tensor):
    return tensor.t()


def _smaller(tensor):
    return tensor[:2]


def _in_half_the_bytes(tensor):
    return tensor.view(torch.bfloat16).flatten()[:16].view(4, 4)


def _in_strides(tensor):
    return tensor.as_strided((4, 4), (1, 0))


AT_THE_SAME_ADDRESS = [_transposed, _smaller, _in_half_the_bytes, _in_strides]


@pytest.mark.parametrize("which", [1, 2], ids=["parameter", "diagonal"])
def test_other_numbers_in_the_same_bytes_of_any_row_are_looked_at(columns, which):
    kept = columns[which][1]
    kept.data = kept.data.view(torch.float64)  # half as many
    assert places_at_once(*columns) is None


@pytest.mark.parametrize("change", AT_THE_SAME_ADDRESS)
@pytest.mark.parametrize("which", [1, 2], ids=["parameter", "diagonal"])
def test_another_tensor_at_the_same_address_is_another(columns, which, change):
    kept = columns[which][0]
    address = kept.data_ptr()
    kept.data = change(kept.data)
    assert kept.data_ptr() == address
    assert places_at_once(*columns) is None


@pytest.mark.parametrize("which", [0, 1, 2], ids=["gradient", "parameter", "diagonal"])
@pytest.mark.parametrize("change", [torch.Tensor.double, lambda t: t.t().contiguous().t()])
def test_a_tensor_put_in_the_place_of_another_is_looked_at(columns, which, change):
    columns[which][0] = change(columns[which][0].detach())
    assert places_at_once(*columns) is None


def test_a_tensor_of_another_shape_that_fills_as_many_bytes_is_looked_at(columns):
    columns[2][2] = torch.rand(3, 2)
    assert places_at_once(*columns) is None


def test_the_same_bytes_read_as_other_numbers_are_looked_at(columns):
    diagonals = columns[2]
    diagonals[0].data = diagonals[0].data.view(torch.int32)
    assert places_at_once(*columns) is None
    for diagonal in diagonals[1:]:
        diagonal.data = diagonal.data.view(torch.int32)
    assert places_at_once(*columns) is not None


def test_tensors_that_all_have_another_shape_in_the_same_memory_are_looked_at_anew(columns):
    for column in columns:
        column[2].data = column[2].data.view(3, 2)
    assert places_at_once(*columns) is not None
    columns[0][2] = torch.zeros(2, 3)
    assert places_at_once(*columns) is None


def test_a_gradient_of_another_shape_is_not_taken(columns):
    columns[0][2] = torch.zeros(3, 2)
    assert places_at_once(*columns) is None


def test_a_lazily_negated_gradient_is_not_taken(columns):
    columns[0][1] = torch._neg_view(columns[0][1])
    assert columns[0][1].is_contiguous()
    assert places_at_once(*columns) is None


def test_a_column_more_or_less_is_another_set(columns):
    gradients, parameters, diagonals = columns
    assert places_at_once(gradients, parameters, diagonals, diagonals[::-1]) is None
    assert places_at_once(gradients, diagonals).kept == (tuple(d.data_ptr() for d in diagonals),)
    assert places_at_once([], []) is None


def test_no_more_is_remembered_than_came_last(columns, monkeypatch):
    monkeypatch.setattr(lists, "_MOST", 3)
    sets = [[torch.zeros(2)] for _ in range(5)]
    for each in sets:
        places_at_once([torch.zeros(2)], each)
    assert len(lists._rows) == 3


def test_what_stays_is_handed_on_as_the_very_same_tuples(columns):
    first, second = places_at_once(*columns), places_at_once(*columns)
    assert first.sizes is second.sizes
    assert first.together is second.together
    assert first.together == sum(first.kept, ())


def test_columns_cut_elsewhere_are_another_set(columns):
    gradients, parameters, diagonals = columns
    cut = [parameters[:2], [parameters[2], *diagonals]]
    assert places_at_once(gradients, *cut) is None
