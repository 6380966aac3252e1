"""What is added to the diagonal before dividing by it, and what stands for a curvature never seen.

Absolute damping is the paper's: the number itself, so an element without curvature moves by
g / damping. Relative damping is a share of the mean diagonal of the element's own tensor: scaling
the loss scales both alike. Initial damping is a share of the mean diagonal over all tensors when
they first moved (`mean_floor` keeps it): one number for all tensors and for the whole run, as the
paper's, and scaled with the loss, as the relative one.

With the latter two, an element whose curvature was never seen non-zero (a dead unit, a row of an
embedding not met yet, a parameter in which the loss is linear) takes its tensor's mean for its own,
or, where the whole tensor shows no more than rounding noise, the mean over all tensors: it moves as
its neighbours do.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from equilibrate.optim.state import State

# A tensor whose mean diagonal is below this many roundings of the mean over all tensors shows the
# rounding noise of the products and no curvature of its own: a bias before a normalisation, say.
ROUNDINGS = 32


def damping_and_fill(
    group: dict[str, Any], parameters: list[Tensor], states: Mapping[Tensor, State]
) -> tuple[list[float], list[float]]:
    """Return, for each tensor, what is added to D and what replaces D where it is zero."""
    if group["damping_kind"] == "absolute":
        return [group["damping"]] * len(parameters), [0.0] * len(parameters)
    pairs = [_shared(group, states[p]) for p in parameters]
    return [damping for damping, _ in pairs], [fill for _, fill in pairs]


def _shared(group: dict[str, Any], state: State) -> tuple[float, float]:
    """Return damping and fill of one tensor, from its own mean diagonal if that is above noise."""
    share, own, mean = group["damping"], float(state["scale"]), float(group["mean_scale"])
    first = float(group["first_mean_scale"]) if group["damping_kind"] == "initial" else None
    if own > noise_level(state["diagonal"].dtype, group.get("scaling", "row")) * mean:
        return share * (own if first is None else first), own if state["unseen"] else 0.0
    return share * (mean if first is None else first) + mean, 0.0


def noise_level(dtype: torch.dtype, scaling: str = "row") -> float:
    """Return how small a tensor's mean diagonal may be, against the mean over all, to count.

    The rounding is that of products. Row and column keep squares of them, (H D^-1/2 v)^2, so that
    theirs is the square of it: parameters whose units differ by c have d that differ by c^2.

    Example:
        >>> noise_level(torch.float32) == 32 * torch.finfo(torch.float32).eps
        True
    """
    level = ROUNDINGS * torch.finfo(dtype).eps
    return level**2 if scaling == "row-column" else level


def mean_scale(states: Mapping[Tensor, State]) -> float:
    """Return the mean diagonal over all elements whose curvature was ever seen; zero if none."""
    seen = {p: p.numel() - state["unseen"] for p, state in states.items()}
    total = sum(states[p]["scale"] * count for p, count in seen.items())
    return float(total / max(1, sum(seen.values())))
