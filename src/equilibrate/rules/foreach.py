"""The update over whole lists of tensors: the same signature and the same numbers as `reference`.

Without momentum it is two passes over memory: D + damping, then one fused multiply and divide. On a
CPU the tensors are then taken one at a time: D + damping is still in the cache when it is used.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.rules.reference import denominator


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
) -> None:
    """Move every parameter in place; `damping` and `fill` are given per tensor."""
    signed_lr = lr if maximize else -lr
    if weight_decay != 0:
        _shrink(parameters, 1 - lr * weight_decay)
    if buffers is None and parameters[0].device.type == "cpu":
        for p, g, d, extra, gap in zip(
            parameters, gradients, diagonals, damping, fill, strict=True
        ):
            p.addcdiv_(g, denominator(d, extra, gap), value=signed_lr)
        return
    divisors = _denominators(diagonals, damping, fill)
    if buffers is None:
        torch._foreach_addcdiv_(parameters, gradients, divisors, value=signed_lr)
        return
    torch._foreach_mul_(buffers, momentum)
    if not nesterov:
        torch._foreach_addcdiv_(buffers, gradients, divisors)
        torch._foreach_add_(parameters, buffers, alpha=signed_lr)
        return
    updates = torch._foreach_div(gradients, divisors)
    torch._foreach_add_(buffers, updates)
    torch._foreach_add_(updates, buffers, alpha=momentum)
    torch._foreach_add_(parameters, updates, alpha=signed_lr)


def _shrink(parameters: list[Tensor], factor: float) -> None:
    """Multiply all parameters; on a CPU `_foreach_mul_` rounds the factor to a half type first."""
    if any(p.device.type == "cpu" for p in parameters):
        for parameter in parameters:
            parameter.mul_(factor)
    else:
        torch._foreach_mul_(parameters, factor)


def _denominators(
    diagonals: list[Tensor], damping: Sequence[float], fill: Sequence[float]
) -> list[Tensor]:
    """Return D + damping for every tensor, those with a gap to fill one at a time."""
    if all(d > 0 for d in damping) and not any(fill):
        return list(torch._foreach_add(diagonals, list(damping)))
    return [denominator(*each) for each in zip(diagonals, damping, fill, strict=True)]
