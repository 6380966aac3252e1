"""How large an update is, in one pass over memory: read g and D, write a sum for each tensor.

The sum of u^2 with u = g / (D + damping) as `kernels.update` has it, for `optim.growth`. The sums
are added in double precision and in a fixed order: the same bits always.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from equilibrate.kernels.blocks import BLOCK, TYPES, at, block_of, tables
from equilibrate.kernels.lists import Places, places_of
from equilibrate.kernels.sums import sum_of


def squares(
    gradients: Sequence[Tensor],
    diagonals: Sequence[Tensor],
    *,
    damping: Tensor,
    fill: Tensor,
    update_limit: float | None = None,
    places: Places | None = None,
) -> Tensor:
    """Return a sum for each of some tensors of one device and one set of dtypes, laid out alike.

    `places` are theirs, where they are known; parameters and buffers may come after them.
    """
    device, count = gradients[0].device, len(gradients)
    sizes, own, others, _ = places or places_of(gradients, diagonals)
    chart, (kept, new), aligned = tables(device, sizes, others[0], own)
    parts = torch.empty(chart.blocks, dtype=torch.float64, device=device)
    _squares[(chart.blocks,)](
        kept,
        new,
        chart.table,
        damping,
        fill,
        parts,
        update_limit,
        GRADIENT=TYPES[gradients[0].dtype],
        WIDE=TYPES[diagonals[0].dtype],
        ALIGNED=aligned,
        BLOCK=BLOCK,
        num_warps=8,
    )
    total = torch.empty(count, dtype=torch.float64, device=device)
    _sum_up[(count,)](parts, chart.first, total, BLOCK=1024)
    return total


@triton.jit
def _squares(
    places, gradients, chart, damping, fill, parts, limit, GRADIENT: tl.constexpr,
    WIDE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tensor, start, left = block_of(chart, BLOCK)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < left
    gradient = at(gradients + tensor, GRADIENT, ALIGNED) + start
    diagonal = at(places + tensor, WIDE, ALIGNED) + start
    extra = tl.load(damping + tensor).to(WIDE)
    unseen = tl.load(fill + tensor).to(WIDE) + extra
    unseen = tl.where(unseen > 0, unseen, float("inf"))
    g = tl.load(gradient + offsets, mask, 0.0).to(WIDE)
    d = tl.abs(tl.load(diagonal + offsets, mask, 0.0))
    u = g / tl.where(d == 0, unseen, d + extra)
    if limit is not None:  # written so that what is not a number stays so
        u = tl.where(u > limit, limit, tl.where(u < -limit, -limit, u))
    u = tl.where(mask, u, 0.0).to(tl.float64)  # a float's square would overflow early
    tl.store(parts + tl.program_id(0), tl.sum(u * u))


@triton.jit
def _sum_up(parts, first, total, BLOCK: tl.constexpr):
    tensor = tl.program_id(0)
    start = tl.load(first + tensor)
    count = tl.load(first + tensor + 1) - start
    tl.store(total + tensor, sum_of(parts + start, count, BLOCK))
