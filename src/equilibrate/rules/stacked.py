"""The update of many trials at once: tensors (trials, ...), one number a trial for each setting.

The same numbers as `reference`, trial by trial. Settings come as tensors that broadcast, shaped
(trials, 1, ...): a learning rate of each trial's own, on the device, so that nothing is read back.
"""

import math

import torch
from torch import Tensor


def denominator(diagonal: Tensor, damping: Tensor, fill: Tensor) -> Tensor:
    """Return D + damping, `fill` in place of D where D is zero; infinite where all are zero.

    Example:
        >>> d = torch.tensor([[0.0, 2.0], [0.0, 2.0]])
        >>> denominator(d, torch.tensor([[0.5], [0.0]]), torch.tensor([[1.0], [0.0]]))
        tensor([[1.5000, 2.5000],
                [   inf, 2.0000]])
    """
    unseen = fill + damping
    unseen = torch.where(unseen > 0, unseen, math.inf)
    return torch.where(diagonal == 0, unseen, diagonal + damping)


def divided(
    gradient: Tensor,
    diagonal: Tensor,
    damping: Tensor,
    fill: Tensor,
    update_limit: Tensor | None,
) -> Tensor:
    """Return u = g / (D + damping), no element larger than a trial's `update_limit`."""
    update = gradient / denominator(diagonal, damping, fill)
    return update if update_limit is None else update.clamp(-update_limit, update_limit)


def step_(
    parameter: Tensor,
    gradient: Tensor,
    diagonal: Tensor,
    buffer: Tensor | None,
    *,
    lr: Tensor,
    damping: Tensor,
    fill: Tensor,
    momentum: Tensor,
    weight_decay: Tensor | None,
    nesterov: bool,
    maximize: bool,
    update_limit: Tensor | None = None,
    scale: Tensor | None = None,
) -> None:
    """Move one stacked parameter in place, every trial by its own settings."""
    update = divided(gradient, diagonal, damping, fill, update_limit)
    if scale is not None:
        update = update * scale
    if buffer is not None:
        buffer.mul_(momentum).add_(update)
        update = update + momentum * buffer if nesterov else buffer
    if weight_decay is not None:
        parameter.mul_(1 - lr * weight_decay)
    parameter.add_(lr * update if maximize else -lr * update)
