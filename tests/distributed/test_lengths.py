"""Norms without a copy equal those in double precision, for every size, dtype and layout."""

import math

import pytest
import torch

from equilibrate.distributed import inner, norm


def drawn(*shape, dtype=torch.float32, scale=1.0):
    generator = torch.Generator().manual_seed(sum(shape))
    return (scale * torch.randn(shape, generator=generator)).to(dtype)


CASES = {
    "none": [],
    "empty": [torch.zeros(0), torch.zeros(3, 0)],
    "scalar": [torch.tensor(-3.0)],
    "zeros": [torch.zeros(5000)],
    "two": [drawn(7), drawn(3, 4)],
    "empty among others": [drawn(7), torch.zeros(0), drawn(3, 4)],
    "long": [drawn(300_005)],
    "long, transposed": [drawn(300, 1001).T],
    "long, float64": [drawn(300_005, dtype=torch.float64)],
    "long, bfloat16": [drawn(300_005, dtype=torch.bfloat16)],
    "long, squares that underflow": [drawn(300_005, scale=1e-30)],
    "long, squares that overflow": [drawn(300_005, scale=1e30)],
    "long, all alike": [torch.full((11_000_000,), 0.1)],
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
    """Eleven million roundings of double precision, half in a root, of either sum."""
    expected = pytest.approx(in_double(tensors), rel=11e6 * 2**-53, abs=0.0)
    assert norm(tensors) == expected
    assert inner(tensors, tensors) ** 0.5 == expected


def test_lengths_that_differ_by_less_than_single_precision_are_told_apart():
    """Whether gradients are of one length tells whether a closure clips them."""
    one = torch.ones(10_000)
    other = one.clone()
    other[0] += 1e-4
    assert norm([other]) - norm([one]) == pytest.approx(1e-4 / 100, rel=1e-3)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_hidden(bad):
    found = norm([torch.tensor([1.0, bad]), torch.ones(3)])
    assert math.isnan(found) if math.isnan(bad) else found == math.inf
