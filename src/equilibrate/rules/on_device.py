"""The update with its numbers on the device: the same as `reference`, and nothing is read back.

The learning rate, the damping and the fill come as tensors, so a captured graph follows them when
they change, and no step waits for the device.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


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
) -> None:
    """Move every parameter in place; `damping` and `fill` hold one number for each tensor.

    The diagonals may be signed: their size counts.

    Example:
        >>> theta = torch.tensor([1.0, 1.0])
        >>> half, none = torch.tensor([0.5]), torch.tensor([0.0])
        >>> step([theta], [torch.ones(2)], [torch.tensor([1.5, 0.0])], None, lr=torch.tensor(1.0),
        ...      damping=half, fill=none, momentum=None, nesterov=False, weight_decay=None,
        ...      maximize=False)
        >>> theta
        tensor([ 0.5000, -1.0000])
    """
    unseen, signed_lr = _unseen(damping, fill), lr if maximize else -lr
    for i, numbers in enumerate(zip(damping.unbind(), unseen.unbind(), strict=True)):
        update = _divided(gradients[i], diagonals[i], *numbers, update_limit)
        if scale is not None:
            update = update * scale
        if buffers is not None and momentum is not None:
            buffers[i].mul_(momentum).add_(update)
            update = update + momentum * buffers[i] if nesterov else buffers[i]
        if weight_decay is not None:
            parameters[i].mul_(1 - lr * weight_decay)
        parameters[i].add_(signed_lr * update)


def squares(
    gradients: Sequence[Tensor],
    diagonals: Sequence[Tensor],
    *,
    damping: Tensor,
    fill: Tensor,
    update_limit: float | None = None,
) -> Tensor:
    """Return the sum of u^2 over every tensor, in double precision, as `reference.squares`."""
    numbers = damping.unbind(), _unseen(damping, fill).unbind()
    rows = zip(gradients, diagonals, *numbers, strict=True)
    updates = [_divided(*row, update_limit) for row in rows]
    norms = [torch.linalg.vector_norm(update, dtype=torch.float64) for update in updates]
    return torch.stack(norms).square()


def _unseen(damping: Tensor, fill: Tensor) -> Tensor:
    """Return what divides where D is zero: infinity where there is nothing else."""
    unseen = damping + fill
    return torch.where(unseen > 0, unseen, math.inf)


def _divided(
    gradient: Tensor, diagonal: Tensor, extra: Tensor, gap: Tensor, update_limit: float | None
) -> Tensor:
    """Return g / (D + damping) of one tensor, within the limit."""
    size = diagonal.abs()
    update = gradient / torch.where(size == 0, gap.to(size.dtype), size + extra)
    return update if update_limit is None else update.clamp(-update_limit, update_limit)
