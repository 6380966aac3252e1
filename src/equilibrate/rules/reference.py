"""The update, one tensor at a time, as in Algorithm 1; every faster version equals this one.

u      = g / (D + damping), no element larger than `update_limit` where there is one
u      = scale * u, where there is a `scale` (`optim.growth`)
buffer = momentum * buffer + u
theta  = (1 - lr * weight_decay) theta - lr * (buffer, or u + momentum * buffer for Nesterov)
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import threshold


def denominator(diagonal: Tensor, damping: float, fill: float) -> Tensor:
    """Return D + damping, with `fill` in place of D where D is zero.

    Where all three are zero the result is infinite, so that the step there is zero: 0/0 moves
    nothing.

    Example:
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


def divided(
    gradient: Tensor, diagonal: Tensor, damping: float, fill: float, update_limit: float | None
) -> Tensor:
    """Return u = g / (D + damping), no element larger than `update_limit` where there is one."""
    update = gradient / denominator(diagonal, damping, fill)
    return update if update_limit is None else update.clamp_(-update_limit, update_limit)


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
    scale: float | Tensor | None = None,
) -> None:
    """Move every parameter in place; `damping` and `fill` are given per tensor."""
    for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        update = divided(gradient, diagonals[i], damping[i], fill[i], update_limit)
        if scale is not None:
            update.mul_(scale)
        if buffers is not None:
            buffers[i].mul_(momentum).add_(update)
            update = update + momentum * buffers[i] if nesterov else buffers[i]
        if weight_decay != 0:
            parameter.mul_(1 - lr * weight_decay)
        parameter.add_(update, alpha=lr if maximize else -lr)


def squares(
    gradients: list[Tensor],
    diagonals: list[Tensor],
    *,
    damping: Sequence[float],
    fill: Sequence[float],
    update_limit: float | None = None,
) -> Tensor:
    """Return the sum of u^2 over every tensor, in double precision.

    Example:
        >>> g, d = torch.tensor([3.0, 4.0]), torch.tensor([1.0, 1.0])
        >>> squares([g], [d], damping=[0.0], fill=[0.0])
        tensor([25.], dtype=torch.float64)
    """
    rows = zip(gradients, diagonals, damping, fill, strict=True)
    found = [divided(*row, update_limit).double().square().sum() for row in rows]
    return torch.stack([each.to(found[0].device) for each in found])
