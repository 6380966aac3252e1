"""The sum that kernels share: as many blocks as it takes, none beyond its end, in any dtype."""

import pytest
import torch

from tests.kernels.device import DEVICE, RUNS_KERNELS

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
sums = pytest.importorskip("equilibrate.kernels.sums")
pytestmark = RUNS_KERNELS
BLOCK = 32


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 3])
def test_it_is_the_sum_of_so_many_numbers(count, dtype):
    # Whole numbers, whose sum is exact in any order; what lies beyond the end would show.
    numbers = torch.arange(2**40, 2**40 + count + BLOCK, device=DEVICE).to(dtype)
    total = torch.empty((), dtype=dtype, device=DEVICE)
    _sum[(1,)](numbers, count, total, BLOCK=BLOCK)
    assert total == numbers[:count].sum()


@triton.jit
def _sum(numbers, count, total, BLOCK: tl.constexpr):
    tl.store(total, sums.sum_of(numbers, count, BLOCK))
