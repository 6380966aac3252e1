"""What is added to the diagonal before dividing by it, and what stands for a curvature never seen.

Absolute damping is the paper's: the number itself, so an element without curvature moves by
g / damping. Relative damping is a share of the mean diagonal of the element's own tensor: scaling
the loss scales both alike. An element whose curvature was never seen non-zero (a dead unit, a row
of an embedding not met yet, a parameter in which the loss is linear) then takes that mean for its
own, or, where its whole tensor is unseen, the mean over all tensors: it moves as its neighbours do.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from equilibrate.optim.state import State


def damping_and_fill(
    group: dict[str, Any], parameters: list[Tensor], states: Mapping[Tensor, State]
) -> tuple[list[float], list[float]]:
    """Return, for each tensor, what is added to D and what replaces D where it is zero."""
    if group["damping_kind"] == "absolute":
        return [group["damping"]] * len(parameters), [0.0] * len(parameters)
    scales = [states[p]["scale"] or mean_scale(states) for p in parameters]
    fills = [s if states[p]["unseen"] else 0.0 for p, s in zip(parameters, scales, strict=True)]
    return [group["damping"] * s for s in scales], fills


def mean_scale(states: Mapping[Tensor, State]) -> float:
    """Return the mean diagonal over all elements whose curvature was ever seen; zero if none."""
    seen = {p: p.numel() - state["unseen"] for p, state in states.items() if isinstance(p, Tensor)}
    total = sum(states[p]["scale"] * count for p, count in seen.items())
    return float(total / max(1, sum(seen.values())))
