"""What an optimizer divides the gradient by, element by element, read from its state.

Read, never written. An optimizer without such a number (SGD), or before its first step, gives None,
and so does a sharded parameter: no rank has the whole of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from equilibrate.distributed import is_sharded
from equilibrate.optim import mean_floor
from equilibrate.optim.damping import damping_and_fill
from equilibrate.optim.moving import CurvatureOptimizer
from equilibrate.rules.reference import denominator

State = dict[str, Any]
Group = dict[str, Any]


@dataclass(frozen=True)
class Divisor:
    """The diagonal D of one tensor, what is added to it, and what the gradient is divided by."""

    diagonal: Tensor
    damping: float
    divisor: Tensor
    kind: str
    weight: float = float("nan")  # probes it is worth, at least (`diagonals.averaging`)


def divisor_of(optimizer: Optimizer, parameter: Tensor, group: Group) -> Divisor | None:
    """Return what this optimizer divides this parameter's gradient by; None if by nothing yet.

    Example:
        >>> weight = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.RMSprop([weight], lr=0.1, alpha=0.5)
        >>> weight.square().sum().backward()
        >>> optimizer.step()
        >>> divisor_of(optimizer, weight, optimizer.param_groups[0]).diagonal
        tensor([1.4142, 1.4142])
    """
    state = optimizer.state.get(parameter)
    if not state or is_sharded(parameter):
        return None
    if isinstance(optimizer, CurvatureOptimizer):
        return _of_curvature(optimizer, parameter, group, state)
    for key, read in _SQUARED_GRADIENT.items():
        if key in state and (key != "exp_avg_sq" or "betas" in group):  # not Adafactor's
            diagonal = read(state, group)
            damping = float(group.get("eps", 0.0))
            return Divisor(diagonal, damping, diagonal + damping, "squared gradient")
    return None


def _of_curvature(
    optimizer: CurvatureOptimizer, parameter: Tensor, group: Group, state: State
) -> Divisor | None:
    if not state["probes"]:
        return None
    (damping,), (fill,) = damping_and_fill(group, [parameter], optimizer.state)
    diagonal = optimizer._kind.magnitude(state["diagonal"])
    kind, weight = optimizer._kind.__name__.rpartition(".")[2], float(state["weight"])
    divisor, brake = denominator(diagonal, damping, fill), mean_floor.brake(group)
    divisor = divisor if brake is None else divisor.div_(float(brake))
    return Divisor(diagonal, damping, divisor, kind, weight)


def _adam(state: State, group: Group) -> Tensor:
    """sqrt(v / (1 - beta_2^t)), the bias-corrected root."""
    correction = 1 - group["betas"][1] ** float(state["step"])
    second: Tensor = state["max_exp_avg_sq" if "max_exp_avg_sq" in state else "exp_avg_sq"]
    return torch.sqrt(second / correction)


def _rmsprop(state: State, group: Group) -> Tensor:
    second: Tensor = state["square_avg"]
    return (second - state["grad_avg"].square() if "grad_avg" in state else second).sqrt()


_SQUARED_GRADIENT: dict[str, Callable[[State, Group], Tensor]] = {
    "exp_avg_sq": _adam,  # Adam, AdamW, NAdam, RAdam
    "square_avg": _rmsprop,  # RMSprop, Adadelta
    "sum": lambda state, group: torch.sqrt(state["sum"]),  # Adagrad
}


def stability_limit(group: Group) -> float:
    """Return what learning rate times sharpness may not exceed on a quadratic.

    2 for plain descent, 2 (1 + m) with heavy-ball momentum m, 2 (1 + m) / (1 + 2 m) with
    Nesterov's, and 2 (1 + b) / (1 - b) where the gradient is averaged with weight b (Adam), which
    divides the step by 1 / (1 - b) (Cohen et al. 2021, 2022). SGD's dampening d divides the step
    by 1 / (1 - d), where there is momentum.

    Example:
        >>> stability_limit({"momentum": 0.9})
        3.8
    """
    if "betas" in group:
        b = group["betas"][0]
        return float(2 * (1 + b) / (1 - b))
    m = float(group.get("momentum", 0.0))
    if group.get("nesterov"):
        return 2 * (1 + m) / (1 + 2 * m)
    return 2 * (1 + m) / (1 - float(group.get("dampening", 0.0)) if m else 1.0)
