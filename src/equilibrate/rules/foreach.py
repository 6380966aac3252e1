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
    update_limit: float | None = None,
    scale: float | Tensor | None = None,
) -> None:
    """Move every parameter in place; `damping` and `fill` are given per tensor."""
    signed_lr = lr if maximize else -lr
    if weight_decay != 0:
        _shrink(parameters, 1 - lr * weight_decay)
    if update_limit is not None or scale is not None:
        updates = _divided(gradients, _denominators(diagonals, damping, fill), update_limit)
        if scale is not None:
            _scale(updates, scale)
        _move(parameters, updates, buffers, momentum, nesterov, signed_lr)
        return
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
    if not nesterov:
        torch._foreach_mul_(buffers, momentum)
        torch._foreach_addcdiv_(buffers, gradients, divisors)
        torch._foreach_add_(parameters, buffers, alpha=signed_lr)
        return
    updates = _divided(gradients, divisors, None)
    _move(parameters, updates, buffers, momentum, nesterov, signed_lr)


def _move(
    parameters: list[Tensor],
    updates: list[Tensor],
    buffers: list[Tensor] | None,
    momentum: float,
    nesterov: bool,
    signed_lr: float,
) -> None:
    """Take the updates into the buffers, if there are any, and move; `updates` may be changed."""
    if buffers is not None:
        torch._foreach_mul_(buffers, momentum)
        torch._foreach_add_(buffers, updates)
        if nesterov:
            torch._foreach_add_(updates, buffers, alpha=momentum)
    moved = updates if buffers is None or nesterov else buffers
    torch._foreach_add_(parameters, moved, alpha=signed_lr)


def squares(
    gradients: list[Tensor],
    diagonals: list[Tensor],
    *,
    damping: Sequence[float],
    fill: Sequence[float],
    update_limit: float | None = None,
) -> Tensor:
    """Return the sum of u^2 over every tensor, in double precision; on a CPU one at a time."""
    if gradients[0].device.type == "cpu":
        rows = zip(gradients, diagonals, damping, fill, strict=True)
        norms = [_norm(g, denominator(d, *two), update_limit) for g, d, *two in rows]
    else:
        divisors = _denominators(diagonals, damping, fill)
        updates = _divided(gradients, divisors, update_limit)
        held = [update for update in updates if update.numel()]
        found = iter(torch._foreach_norm(held, 2, dtype=torch.float64) if held else ())
        none = torch.zeros((), dtype=torch.float64, device=gradients[0].device)
        norms = [next(found) if update.numel() else none for update in updates]
    return torch.stack([norm.to(norms[0].device) for norm in norms]).square()


def _norm(gradient: Tensor, divisor: Tensor, update_limit: float | None) -> Tensor:
    """Return the norm of one update, which takes the divisor's memory."""
    update = torch.div(gradient, divisor, out=divisor)
    if update_limit is not None:
        update.clamp_(-update_limit, update_limit)
    norm: Tensor = torch.linalg.vector_norm(update, dtype=torch.float64)
    return norm


def _divided(
    gradients: list[Tensor], divisors: list[Tensor], update_limit: float | None
) -> list[Tensor]:
    """Return g / (D + damping) for every tensor, within the limit where there is one."""
    updates = list(torch._foreach_div(gradients, divisors))
    if update_limit is not None:
        torch._foreach_clamp_min_(updates, -update_limit)
        torch._foreach_clamp_max_(updates, update_limit)
    return updates


def _scale(updates: list[Tensor], scale: float | Tensor) -> None:
    """Multiply all updates by one number, which may be on the device."""
    if isinstance(scale, Tensor) and len({update.dtype for update in updates}) == 1:
        scale = scale.to(updates[0].dtype)  # else torch multiplies one tensor after the other
    torch._foreach_mul_(updates, scale)


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
