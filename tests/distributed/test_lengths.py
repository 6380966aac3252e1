"""Norms in one pass equal those in double precision, for every size, dtype and layout."""

import math

import pytest
import torch

from equilibrate.distributed import inner, norm
from equilibrate.distributed.lengths import norms_by_rows, norms_in_trees

# A row's float32 squares are added up in 8 lanes or more: 512 roundings at most, half in a root.
ROW = 4096 / 8 / 2 * torch.finfo(torch.float32).eps


def drawn(*shape, dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(sum(shape))
    return (scale * torch.randn(shape, generator=generator)).to(dtype)


CASES = {
    "none": [],
    "empty": [torch.zeros(0), torch.zeros(3, 0)],
    "scalar": [torch.tensor(-3.0)],
    "zeros": [torch.zeros(5000)],
    "shorter than a row": [drawn(7), drawn(3, 4)],
    "a whole row": [drawn(4096)],
    "rows and a rest": [drawn(3 * 4096 + 5)],
    "transposed": [drawn(70, 90).T],
    "every other one": [drawn(20000)[::2]],
    "channels last": [drawn(2, 8, 16, 16).to(memory_format=torch.channels_last)],
    "float64": [drawn(5000, dtype=torch.float64)],
    "bfloat16": [drawn(5000, dtype=torch.bfloat16)],
    "float16 whose squares overflow": [drawn(5000, dtype=torch.float16, scale=1e3)],
    "mixed": [drawn(9), drawn(9, dtype=torch.float64), drawn(5000, dtype=torch.bfloat16)],
    "squares that underflow": [drawn(5000, scale=1e-30)],
    "squares that overflow": [drawn(5000, scale=1e30)],
    "both": [drawn(5000, scale=1e-30), drawn(5000, scale=1e30)],
}


def in_double(tensors):
    return math.hypot(*(float(t.double().norm()) for t in tensors)) if tensors else 0.0


@pytest.mark.parametrize("tensors", CASES.values(), ids=CASES)
def test_the_norm_is_that_of_double_precision(tensors):
    assert norm(tensors) == pytest.approx(in_double(tensors), rel=ROW, abs=0.0)
    assert inner(tensors, tensors) ** 0.5 == pytest.approx(in_double(tensors), rel=1e-12, abs=0.0)


@pytest.mark.parametrize("way", [norms_by_rows, norms_in_trees])
def test_each_way_gives_the_norm_of_every_tensor(way):
    tensors = [drawn(7), drawn(2 * 4096 + 1), torch.zeros(0), drawn(30, 40).T]
    expected = torch.stack([t.double().norm() for t in tensors])
    found = way(tensors, torch.float32).double()
    torch.testing.assert_close(found, expected, rtol=ROW, atol=0.0)


def test_a_long_sum_is_as_exact_as_a_row():
    """In a few lanes the float32 sum of as many squares was wrong by 1e-3."""
    tensor = torch.full((11_000_000,), 0.1)
    assert norm([tensor]) == pytest.approx(float(tensor[0]) * len(tensor) ** 0.5, rel=ROW)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_hidden(bad):
    found = norm([torch.tensor([1.0, bad]), torch.ones(3)])
    assert math.isnan(found) if math.isnan(bad) else found == math.inf
