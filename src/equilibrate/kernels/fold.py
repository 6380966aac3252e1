"""Folding one product into the diagonals of many parameters, in one pass that also sums them up.

D^2 <- (old D)^2 + (new Hv)^2 for equilibration, d <- old d + new (v * Hv) for Jacobi; then, for
each tensor, the sum of |D| and the number of its elements that are not zero. A product that is not
finite (`fine` is false) changes nothing. The sums are added in a fixed order: the same bits always.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from equilibrate.kernels.blocks import BLOCK, TYPES, at, block_of, tables
from equilibrate.kernels.lists import addresses
from equilibrate.kernels.sums import sum_of


def fold(
    diagonals: Sequence[Tensor],
    contributions: Sequence[Tensor],
    old: Tensor,
    new: Tensor,
    fine: Tensor,
    *,
    roots: bool,
) -> tuple[Tensor, Tensor]:
    """Fold tensors of one device and dtype, laid out alike; return sums and counts by tensor."""
    device, kind = diagonals[0].device, TYPES[diagonals[0].dtype]
    sizes = tuple(map(Tensor.numel, diagonals))
    chart, (table,), aligned = tables(device, sizes, addresses([*diagonals, *contributions]))
    sums = torch.empty(chart.blocks, dtype=torch.float64, device=device)
    counts = torch.empty(chart.blocks, dtype=torch.int64, device=device)
    _fold[(chart.blocks,)](
        table,
        chart.table,
        old,
        new,
        fine,
        sums,
        counts,
        len(diagonals),
        WIDE=kind,
        ROOTS=roots,
        ALIGNED=aligned,
        BLOCK=BLOCK,
        num_warps=8,
    )
    total = torch.empty(len(diagonals), dtype=torch.float64, device=device)
    seen = torch.empty(len(diagonals), dtype=torch.int64, device=device)
    _sum_up[(len(diagonals),)](sums, counts, chart.first, total, seen, BLOCK=1024)
    return total, seen


@triton.jit
def _fold(
    table, chart, old, new, fine, sums, counts, count,
    WIDE: tl.constexpr, ROOTS: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tensor, start, left = block_of(chart, BLOCK)
    diagonal = at(table + tensor, WIDE, ALIGNED) + start
    product = at(table + count + tensor, WIDE, ALIGNED) + start
    kept, entering = tl.load(old + tensor).to(WIDE), tl.load(new + tensor).to(WIDE)
    ok = tl.load(fine)
    if left >= BLOCK:
        size, seen = _mix(diagonal, product, kept, entering, ok, None, ROOTS, BLOCK)
    else:
        mask = tl.arange(0, BLOCK) < left
        size, seen = _mix(diagonal, product, kept, entering, ok, mask, ROOTS, BLOCK)
    tl.store(sums + tl.program_id(0), size.to(tl.float64))
    tl.store(counts + tl.program_id(0), seen.to(tl.int64))


@triton.jit
def _mix(diagonal, product, kept, entering, ok, mask, ROOTS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    before = tl.load(diagonal + offsets, mask)
    a = before * kept
    b = tl.load(product + offsets, mask) * entering
    if ROOTS:  # hypot: a plain square would overflow or underflow early
        larger, smaller = tl.maximum(tl.abs(a), tl.abs(b)), tl.minimum(tl.abs(a), tl.abs(b))
        share = smaller / tl.where(larger == 0, 1.0, larger)
        mixed = larger * tl.sqrt(1 + share * share)
    else:
        mixed = a + b
    d = tl.where(ok, mixed, before)
    tl.store(diagonal + offsets, d, mask)
    if mask is not None:
        d = tl.where(mask, d, 0.0)
    return tl.sum(tl.abs(d)), tl.sum((d != 0).to(tl.int32))


@triton.jit
def _sum_up(sums, counts, first, total, seen, BLOCK: tl.constexpr):
    tensor = tl.program_id(0)
    start = tl.load(first + tensor)
    count = tl.load(first + tensor + 1) - start
    tl.store(total + tensor, sum_of(sums + start, count, BLOCK))
    tl.store(seen + tensor, sum_of(counts + start, count, BLOCK))
