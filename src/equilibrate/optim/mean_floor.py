"""A floor under the mean of D: where curvature falls, steps do not grow.

    b     = min(1, m / m0),   m the mean of D over all parameters, m0 the same when they first moved
    theta <- theta - lr * b * g / (D + damping)

A network that is trained with too long a step moves to where it is flatter, and a fixed learning
rate keeps it there. Where D falls along, steps grow as fast as curvature falls, and it is never
flat enough. With b, D falls element against element alone: its mean counts as no less than m0.

A parameter that joins later changes the mean over all without any change of curvature: m0 then
moves along, so that b stays what it was.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

OF_GROUP = {"mean_scale": torch.float64, "first_scale": torch.float64}
"""What is kept, in every group and equal in all: m and m0, zero before anything was measured."""


def joined(first: float, before: float, after: float) -> float:
    """Return m0 after parameters joined and the mean went from `before` to `after`.

    Example:
        >>> joined(0.0, before=0.0, after=3.0), joined(2.0, before=4.0, after=6.0)
        (3.0, 3.0)
    """
    return first * (after / before) if before else after


def brake(group: Mapping[str, Any]) -> float | Tensor | None:
    """Return b of a group that asks for it; None stands for one.

    Example:
        >>> brake({"mean_floor": True, "mean_scale": 3.0, "first_scale": 6.0})
        0.5
        >>> brake({"mean_floor": True, "mean_scale": 6.0, "first_scale": 3.0})
        >>> brake({"mean_floor": False, "mean_scale": 3.0, "first_scale": 6.0})
    """
    mean, first = group["mean_scale"], group["first_scale"]
    if not group["mean_floor"]:
        return None
    if isinstance(mean, Tensor):  # nothing is read back
        return brake_on_device(mean, first)
    return mean / first if mean < first else None


def brake_on_device(mean: Tensor, first: Tensor) -> Tensor:
    """Return b as a tensor; one where no curvature was seen.

    Example:
        >>> brake_on_device(torch.tensor([3.0, 6.0, 0.0]), torch.tensor([6.0, 3.0, 0.0]))
        tensor([0.5000, 1.0000, 1.0000])
    """
    return torch.where(mean < first, mean / first, 1.0)
