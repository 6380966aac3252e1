"""What is added to the diagonal before dividing by it, and what stands for a curvature never seen.

Absolute damping is the paper's: the number itself, so an element without curvature moves by
g / damping. Relative damping is a share of the mean diagonal of the element's own tensor: scaling
the loss scales both alike. Initial damping is a share of the mean diagonal over all tensors, of
each as it was when it first moved: one number for all tensors and for the whole run, as the
paper's, and scaled with the loss, as the relative one. What joins later brings in its own mean by
the number of its elements; where no curvature was seen at first, the first that is seen counts.

With the latter two, an element whose curvature was never seen non-zero (a dead unit, a row of an
embedding not met yet, a parameter in which the loss is linear) takes its tensor's mean for its own,
or, where the whole tensor shows no more than rounding noise, the mean over all tensors: it moves as
its neighbours do.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from equilibrate.optim.arguments import DAMPING_KINDS
from equilibrate.optim.state import State

OF_GROUP = {"initial_scale": torch.float64}
"""What is kept for initial damping, in every group and equal in all; zero before anything is."""

# A tensor whose mean diagonal is below this many roundings of the mean over all tensors shows the
# rounding noise of the products and no curvature of its own: a bias before a normalisation, say.
ROUNDINGS = 32


def damping_and_fill(
    group: dict[str, Any], parameters: list[Tensor], states: Mapping[Tensor, State]
) -> tuple[list[float], list[float]]:
    """Return, for each tensor, what is added to D and what replaces D where it is zero."""
    check_kind(group["damping_kind"])
    if group["damping_kind"] == "absolute":
        return [group["damping"]] * len(parameters), [0.0] * len(parameters)
    pairs = [_shared(group, states[p]) for p in parameters]
    return [damping for damping, _ in pairs], [fill for _, fill in pairs]


def _shared(group: dict[str, Any], state: State) -> tuple[float, float]:
    """Return damping and fill of one tensor, from its own mean diagonal if that is above noise."""
    share, own, mean = group["damping"], float(state["scale"]), float(group["mean_scale"])
    initial = group["damping_kind"] == "initial" and (float(group["initial_scale"]) or mean)
    if own > noise_level(state["diagonal"].dtype, group.get("scaling", "row")) * mean:
        return share * (initial or own), own if state["unseen"] else 0.0
    return share * (initial or mean) + mean, 0.0


def check_kind(kind: str) -> None:
    """Raise for a kind that somebody has written into a group."""
    if kind not in DAMPING_KINDS:
        raise ValueError(f"Invalid damping_kind: {kind!r}. It must be one of {DAMPING_KINDS}.")


def initial_scale(
    first: float, others: Mapping[Tensor, State], new: Mapping[Tensor, State]
) -> float:
    """Return the mean diagonal that initial damping is a share of, once `new` has joined.

    Args:
        first: what it was for the others.
        others: the states of what has moved before.
        new: the states of what has not.
    """
    before, now = _seen(others), _seen(new)
    return (first * before + mean_scale(new) * now) / max(1, before + now)


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
    total = sum(state["scale"] * _seen({p: state}) for p, state in states.items())
    return float(total / max(1, _seen(states)))


def _seen(states: Mapping[Tensor, State]) -> int:
    return sum(p.numel() - int(state["unseen"]) for p, state in states.items())
