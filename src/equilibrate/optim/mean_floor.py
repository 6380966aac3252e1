"""A floor under the mean of D: where curvature falls, steps do not grow.

    b     = min(1, m / m0)
    theta <- theta - lr * b * g / (D + damping)

with m the mean of D over all parameters and m0 the same when they first moved, both plus the
damping where that is one number for the whole run (`added`).

A network that is trained with too long a step moves to where it is flatter, and a fixed learning
rate keeps it there. Where D falls along, steps grow as fast as curvature falls, and it is never
flat enough. With b, D falls element against element alone: its mean counts as no less than m0.

A parameter that joins later changes the mean over all without any change of curvature: m0 then
moves along, so that b stays that of the others.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

OF_GROUP = {"mean_scale": torch.float64, "first_mean_scale": torch.float64}
"""What is kept, in every group and equal in all: m and m0, zero before anything was measured."""


def with_joined(first: float, others: float, together: float) -> float:
    """Return m0 once parameters have joined.

    Args:
        first: m0 of the others.
        others: the mean over them now; zero if there are none.
        together: the mean over all.

    Example:
        >>> with_joined(2.0, others=4.0, together=6.0), with_joined(0.0, others=0.0, together=3.0)
        (3.0, 3.0)
    """
    return first * (together / others) if others else together


def brake(group: Mapping[str, Any], *, on_device: bool = False) -> float | Tensor | None:
    """Return b of a group that asks for it; None stands for one. `on_device` reads nothing back.

    Example:
        >>> group = {"mean_floor": True, "damping_kind": "relative", "damping": 0.01}
        >>> group["initial_scale"] = 6.0
        >>> brake(group | {"mean_scale": 3.0, "first_mean_scale": 6.0})
        0.5
        >>> brake(group | {"mean_scale": 6.0, "first_mean_scale": 3.0})
    """
    if not group["mean_floor"]:
        return None
    mean, first = group["mean_scale"], group["first_mean_scale"]
    if not on_device:
        mean, first = float(mean), float(first)
    more = added(group["damping_kind"], group["damping"], group["initial_scale"])
    if on_device:
        return brake_on_device(mean, first, more)
    return float((mean + more) / (first + more)) if mean < first else None


def added(kind: str, damping: Any, initial: Any) -> Any:
    """Return the damping that stays as it is while D falls, a number or a tensor of them.

    Example:
        >>> [added(kind, 0.5, 6.0) for kind in ("absolute", "initial", "relative")]
        [0.5, 3.0, 0.0]
    """
    if kind == "absolute":
        return damping
    return damping * initial if kind == "initial" else 0.0


def brake_on_device(mean: Tensor, first: Tensor, added: float | Tensor) -> Tensor:
    """Return b as a tensor; one where no curvature was seen.

    Example:
        >>> brake_on_device(torch.tensor([3.0, 6.0, 0.0]), torch.tensor([6.0, 3.0, 0.0]), 0.0)
        tensor([0.5000, 1.0000, 1.0000])
    """
    return torch.where(mean < first, (mean + added) / (first + added), 1.0)
