"""How far an update may grow, in one launch: `optim.growth.limit_`, all in double.

As plain operations on numbers it is twenty launches, which a small network waits for.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from equilibrate.kernels.capture import number
from equilibrate.kernels.sums import sum_of


def limit_(
    squares: Tensor,
    elements: int,
    mean: Tensor,
    count: Tensor,
    *,
    growth: float,
    memory: float,
    early: int,
    more: float,
) -> Tensor:
    """Return f; average and count are renewed in place. `optim.growth` explains the numbers."""
    device = squares.device
    factor = torch.empty((), dtype=torch.float64, device=device)
    # Numbers on the device, since a kernel takes plain ones in single precision.
    _limit[(1,)](
        squares, mean, count, factor, number(memory, device), number(growth, device),
        squares.numel(), elements, EARLY=early, MORE=more, BLOCK=1024, num_warps=4,
    )  # fmt: skip
    return factor


@triton.jit(do_not_specialize=["tensors", "elements"])
def _limit(
    squares, mean, count, factor, memory, allowed, tensors, elements,
    EARLY: tl.constexpr, MORE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    size = tl.sqrt(sum_of(squares, tensors, BLOCK) / elements)
    a, k = tl.load(mean), tl.load(count)
    fine = (size > 0) & (size < float("inf"))
    c = tl.load(allowed) * tl.where(k < EARLY, MORE, 1.0)
    f = tl.where(fine & (k > 0), tl.minimum(c * a / tl.where(fine, size, 1.0), 1.0), 1.0)
    b = tl.minimum(1 - 1 / (k + 1).to(tl.float64), tl.load(memory))
    tl.store(mean, tl.where(fine, b * a + (1 - b) * f * size, a))
    tl.store(count, k + fine.to(tl.int64))
    tl.store(factor, f)
