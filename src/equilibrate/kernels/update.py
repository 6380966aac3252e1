"""The update of `rules.reference` in one pass over memory: read p, g, D (and the buffer), write p.

One launch moves all tensors of one kind. The numbers of a tensor (damping, fill) and the learning
rate are read from the device, so that a captured graph follows them.
"""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from equilibrate.kernels.blocks import BLOCK, TYPES, at, block_of, tables
from equilibrate.kernels.growth import limit_
from equilibrate.kernels.lists import Places, places_of
from equilibrate.kernels.squares import squares

__all__ = ["limit_", "squares", "step"]

_WARPS = 8


def step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    diagonals: Sequence[Tensor],
    buffers: Sequence[Tensor] | None,
    *,
    lr: Tensor,
    damping: Tensor,
    fill: Tensor,
    momentum: Tensor | None,
    nesterov: bool,
    weight_decay: Tensor | None,
    maximize: bool,
    update_limit: float | None = None,
    scale: Tensor | None = None,
    steps: Tensor | None = None,
    places: Places | None = None,
) -> None:
    """Move tensors of one device and one set of dtypes, each dense and laid out as its others are.

    `damping` and `fill` hold a number for each tensor, the other tensors one, in any precision.
    `steps` hold a number for each tensor too, and count one more. `places` are theirs, where
    they are known.
    """
    moved = [parameters] if buffers is None else [parameters, buffers]
    sizes, own, _, others = places or places_of(gradients, diagonals, *moved)
    # The gradients are apart: they alone are elsewhere in every step.
    chart, (kept, new), aligned = tables(gradients[0].device, sizes, others, own)
    _update[(chart.blocks,)](
        kept,
        new,
        chart.table,
        damping,
        fill,
        lr,
        None if buffers is None else momentum,
        weight_decay,
        scale,
        steps,
        update_limit,
        len(parameters),
        PARAMETER=TYPES[parameters[0].dtype],
        GRADIENT=TYPES[gradients[0].dtype],
        WIDE=TYPES[diagonals[0].dtype],
        NESTEROV=nesterov,
        MAXIMIZE=maximize,
        ALIGNED=aligned,
        BLOCK=BLOCK,
        num_warps=_WARPS,
    )


# What is None is no argument of the compiled kernel, and costs a launch nothing.
@triton.jit
def _update(
    places, gradients, chart, damping, fill, lr, momentum, weight_decay, scale, steps, limit, count,
    PARAMETER: tl.constexpr, GRADIENT: tl.constexpr, WIDE: tl.constexpr, NESTEROV: tl.constexpr,
    MAXIMIZE: tl.constexpr, ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tensor, start, left = block_of(chart, BLOCK)
    row = places + tensor
    parameter = at(row + count, PARAMETER, ALIGNED) + start
    gradient = at(gradients + tensor, GRADIENT, ALIGNED) + start
    diagonal = at(row, WIDE, ALIGNED) + start
    extra = tl.load(damping + tensor).to(WIDE)
    unseen = tl.load(fill + tensor).to(WIDE) + extra
    unseen = tl.where(unseen > 0, unseen, float("inf"))
    rate = tl.load(lr).to(WIDE)
    buffer = None if momentum is None else at(row + 2 * count, WIDE, ALIGNED) + start
    m = None if momentum is None else tl.load(momentum).to(WIDE)
    kept = None if weight_decay is None else 1 - rate * tl.load(weight_decay).to(WIDE)
    factor = None if scale is None else tl.load(scale).to(WIDE)
    if steps is not None:
        first = start == 0  # one block of each tensor counts
        tl.store(steps + tensor, tl.load(steps + tensor, first) + 1, first)
    # Only the last block of a tensor needs a mask, and without one loads are 16 bytes wide.
    if left >= BLOCK:
        _move(parameter, gradient, diagonal, buffer, extra, unseen, rate, m, kept, limit, factor,
              None, PARAMETER, WIDE, NESTEROV, MAXIMIZE, BLOCK)  # fmt: skip
    else:
        mask = tl.arange(0, BLOCK) < left
        _move(parameter, gradient, diagonal, buffer, extra, unseen, rate, m, kept, limit, factor,
              mask, PARAMETER, WIDE, NESTEROV, MAXIMIZE, BLOCK)  # fmt: skip


@triton.jit
def _move(
    parameter, gradient, diagonal, buffer, extra, unseen, rate, m, kept, limit, factor, mask,
    PARAMETER: tl.constexpr, WIDE: tl.constexpr, NESTEROV: tl.constexpr, MAXIMIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.arange(0, BLOCK)
    p = tl.load(parameter + offsets, mask).to(WIDE)
    g = tl.load(gradient + offsets, mask).to(WIDE)
    d = tl.abs(tl.load(diagonal + offsets, mask))
    u = g / tl.where(d == 0, unseen, d + extra)
    if limit is not None:  # written so that what is not a number stays so
        u = tl.where(u > limit, limit, tl.where(u < -limit, -limit, u))
    if factor is not None:
        u = u * factor
    if m is not None:
        b = tl.load(buffer + offsets, mask) * m + u
        tl.store(buffer + offsets, b, mask)
        u = u + m * b if NESTEROV else b
    if kept is not None:
        p = p * kept
    p = p + rate * u if MAXIMIZE else p - rate * u
    tl.store(parameter + offsets, p.to(PARAMETER), mask)
