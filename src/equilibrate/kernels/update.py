"""The update of `rules.reference` in one pass over memory: read p, g, D (and the buffer), write p.

One launch moves all tensors of one kind. The numbers of a tensor (damping, fill) and the learning
rate are read from the device, so that a captured graph follows them.
"""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from equilibrate.kernels.blocks import BLOCK, TYPES, addresses, at, plan
from equilibrate.kernels.growth import limit_
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
) -> None:
    """Move tensors of one device and one set of dtypes, each dense and laid out as its others are.

    `damping` and `fill` hold a number for each tensor, the other tensors one, in any precision.
    `steps` hold a number for each tensor too, and count one more.
    """
    first = parameters[0]
    chart = plan(tuple(map(Tensor.numel, parameters)), first.device)
    places, aligned = addresses([*parameters, *diagonals, *(buffers or [])])
    new, also_aligned = addresses(gradients)  # apart: they alone are elsewhere in every step
    _update[(chart.blocks,)](
        places,
        new,
        chart.owner,
        chart.place,
        chart.size,
        damping,
        fill,
        lr,
        lr if momentum is None else momentum,
        lr if weight_decay is None else weight_decay,
        lr if scale is None else scale,
        lr if steps is None else steps,
        len(parameters),
        update_limit or 0.0,
        PARAMETER=TYPES[first.dtype],
        GRADIENT=TYPES[gradients[0].dtype],
        WIDE=TYPES[diagonals[0].dtype],
        MOMENTUM=buffers is not None,
        NESTEROV=nesterov,
        SHRINKS=weight_decay is not None,
        MAXIMIZE=maximize,
        LIMITED=update_limit is not None,
        SCALED=scale is not None,
        COUNTS=steps is not None,
        ALIGNED=aligned and also_aligned,
        BLOCK=BLOCK,
        num_warps=_WARPS,
    )


@triton.jit
def _update(
    places, gradients, owner, place, sizes, damping, fill, lr, momentum, weight_decay, scale, steps,
    count, limit, PARAMETER: tl.constexpr, GRADIENT: tl.constexpr, WIDE: tl.constexpr,
    MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr, SHRINKS: tl.constexpr, MAXIMIZE: tl.constexpr,
    LIMITED: tl.constexpr, SCALED: tl.constexpr, COUNTS: tl.constexpr, ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    tensor = tl.load(owner + program)
    start = tl.load(place + program) * BLOCK
    left = tl.load(sizes + tensor) - start
    row = places + tensor
    parameter = at(row, PARAMETER, ALIGNED) + start
    gradient = at(gradients + tensor, GRADIENT, ALIGNED) + start
    diagonal = at(row + count, WIDE, ALIGNED) + start
    buffer = at(row + (2 * count if MOMENTUM else 0), WIDE, ALIGNED) + start
    extra = tl.load(damping + tensor).to(WIDE)
    unseen = tl.load(fill + tensor).to(WIDE) + extra
    unseen = tl.where(unseen > 0, unseen, float("inf"))
    rate = tl.load(lr).to(WIDE)
    m = tl.load(momentum).to(WIDE)
    kept = 1 - rate * tl.load(weight_decay).to(WIDE) if SHRINKS else 1.0
    factor = tl.load(scale).to(WIDE) if SCALED else 1.0
    if COUNTS and start == 0:  # one block of each tensor counts
        tl.store(steps + tensor, tl.load(steps + tensor) + 1)
    # Only the last block of a tensor needs a mask, and without one loads are 16 bytes wide.
    if left >= BLOCK:
        _move(parameter, gradient, diagonal, buffer, extra, unseen, rate, m, kept, limit, factor,
              None, PARAMETER, WIDE, MOMENTUM, NESTEROV, SHRINKS, MAXIMIZE, LIMITED, SCALED,
              BLOCK)  # fmt: skip
    else:
        mask = tl.arange(0, BLOCK) < left
        _move(parameter, gradient, diagonal, buffer, extra, unseen, rate, m, kept, limit, factor,
              mask, PARAMETER, WIDE, MOMENTUM, NESTEROV, SHRINKS, MAXIMIZE, LIMITED, SCALED,
              BLOCK)  # fmt: skip


@triton.jit
def _move(
    parameter, gradient, diagonal, buffer, extra, unseen, rate, m, kept, limit, factor, mask,
    PARAMETER: tl.constexpr, WIDE: tl.constexpr, MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr,
    SHRINKS: tl.constexpr, MAXIMIZE: tl.constexpr, LIMITED: tl.constexpr, SCALED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.arange(0, BLOCK)
    p = tl.load(parameter + offsets, mask).to(WIDE)
    g = tl.load(gradient + offsets, mask).to(WIDE)
    d = tl.abs(tl.load(diagonal + offsets, mask))
    u = g / tl.where(d == 0, unseen, d + extra)
    if LIMITED:  # written so that what is not a number stays so
        u = tl.where(u > limit, limit, tl.where(u < -limit, -limit, u))
    if SCALED:
        u = u * factor
    if MOMENTUM:
        b = tl.load(buffer + offsets, mask) * m + u
        tl.store(buffer + offsets, b, mask)
        u = u + m * b if NESTEROV else b
    if SHRINKS:
        p = p * kept
    p = p + rate * u if MAXIMIZE else p - rate * u
    tl.store(parameter + offsets, p.to(PARAMETER), mask)
