"""The update, one tensor at a time, as in Algorithm 1; every faster version equals this one.

u      = g / (D + damping), no element larger than `update_limit` where there is one
buffer = momentum * buffer + u
theta  = (1 - lr * weight_decay) theta - lr * (buffer, or u + momentum * buffer for Nesterov)
"""

import math
from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import threshold


def denominator(diagonal: Tensor, damping: float, fill: float) -> Tensor:
    """Return D + damping, with `fill` in place of D where D is zero.

    Where all three are zero the result is infinite, so that the step there is zero: 0/0 moves
    nothing.

    Example:
        >>> import torch
        >>> denominator(torch.tensor([0.0, 2.0]), damping=0.5, fill=1.0)
        tensor([1.5000, 2.5000])
        >>> denominator(torch.tensor([0.0, 2.0]), damping=0.0, fill=0.0)
        tensor([inf, 2.])
    """
    if fill == 0 and damping > 0:
        return diagonal + damping
    unseen = fill if fill + damping > 0 else math.inf
    # D is never negative, so a threshold at zero replaces the zeros, in one pass.
    return threshold(diagonal, 0.0, unseen).add_(damping)


def step(
    parameters: list[Tensor],
    gradients: list[Tensor],
    diagonals: list[Tensor],
    buffers: list[Tensor] | None,
    *,
    lr: float,
    damping: Sequence[float],
    fill: Sequence[float],
    momentum: float,
    nesterov: bool,
    weight_decay: float,
    maximize: bool,
    update_limit: float | None = None,
) -> None:
    """Move every parameter in place; `damping` and `fill` are given per tensor."""
    for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        update = gradient / denominator(diagonals[i], damping[i], fill[i])
        if update_limit is not None:
            update.clamp_(-update_limit, update_limit)
        if buffers is not None:
            buffers[i].mul_(momentum).add_(update)
            update = update + momentum * buffers[i] if nesterov else buffers[i]
        if weight_decay != 0:
            parameter.mul_(1 - lr * weight_decay)
        parameter.add_(update, alpha=lr if maximize else -lr)
