"""Which optimizer classes can train many trials at once, and what each needs for it."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from equilibrate.optim import ESGD, JacobiSGD
from equilibrate.study import first_order

Numbers = dict[str, Tensor]
SCHEDULES = {"lr_schedule": "constant", "momentum_schedule": "constant"}
"""The settings that belong to the study and not to the optimizer, with their defaults."""


@dataclass(frozen=True)
class Rule:
    """How one optimizer class moves a stack.

    Args:
        numbers: the settings that may differ from trial to trial.
        switches: the settings that all trials of a stack must share.
        update: moves one tensor; curvature methods have their own (`stacked_curvature`).
        slots: what is kept for each parameter, in its shape.
        derive: turns (numbers, step) into what `update` takes, in double precision.
        counts: whether `derive` depends on the step.
    """

    numbers: tuple[str, ...]
    switches: tuple[str, ...] = ()
    update: Callable[..., None] | None = None
    slots: tuple[str, ...] = ()
    derive: Callable[[Numbers, Tensor], Numbers] = lambda numbers, step: numbers
    counts: bool = False


def _with_complements(*names: str) -> Callable[[Numbers, Tensor], Numbers]:
    """Add 1 - x of the named numbers, taken before rounding to the parameters' precision."""
    return lambda numbers, step: numbers | {f"rest_of_{name}": 1 - numbers[name] for name in names}


def _adam(numbers: Numbers, step: Tensor) -> Numbers:
    complements = _with_complements("beta1", "beta2")(numbers, step)
    return complements | {
        "step_size": numbers["lr"] / (1 - numbers["beta1"] ** step),
        "root_correction": (1 - numbers["beta2"] ** step).sqrt(),
        "shrink": 1 - numbers["lr"] * numbers["weight_decay"],
    }


def _adagrad(numbers: Numbers, step: Tensor) -> Numbers:
    return numbers | {"step_size": numbers["lr"] / (1 + (step - 1) * numbers["lr_decay"])}


_CURVATURE = Rule(
    numbers=(
        "lr",
        "damping",
        "decay",
        "momentum",
        "weight_decay",
        "seed",
        "warmup_probes",
        "update_limit",
        "growth_limit",
    ),
    switches=("damping_kind", "probe_every", "distribution", "nesterov", "maximize", "mean_floor"),
)
_ADAM_NUMBERS = ("lr", "beta1", "beta2", "eps", "weight_decay")
_ADAM_SLOTS = ("exp_avg", "exp_avg_sq")

RULES: dict[type[Optimizer], Rule] = {
    ESGD: replace(_CURVATURE, switches=(*_CURVATURE.switches, "scaling")),
    JacobiSGD: _CURVATURE,
    torch.optim.SGD: Rule(("lr", "momentum", "weight_decay"), ("nesterov",), first_order.sgd_),
    torch.optim.RMSprop: Rule(
        ("lr", "alpha", "eps", "momentum", "weight_decay"),
        update=first_order.rmsprop_,
        slots=("square_avg",),
        derive=_with_complements("alpha"),
    ),
    torch.optim.Adagrad: Rule(
        ("lr", "lr_decay", "eps", "weight_decay"),
        update=first_order.adagrad_,
        slots=("sum",),
        derive=_adagrad,
        counts=True,
    ),
    torch.optim.Adadelta: Rule(
        ("lr", "rho", "eps", "weight_decay"),
        update=first_order.adadelta_,
        slots=("square_avg", "acc_delta"),
        derive=_with_complements("rho"),
    ),
    torch.optim.Adam: Rule(
        _ADAM_NUMBERS,
        update=first_order.adam_,
        slots=_ADAM_SLOTS,
        derive=_adam,
        counts=True,
    ),
    torch.optim.AdamW: Rule(
        _ADAM_NUMBERS,
        update=first_order.adamw_,
        slots=_ADAM_SLOTS,
        derive=_adam,
        counts=True,
    ),
}


def complete(optimizer: type[Optimizer], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a trial with the optimizer's own defaults for what is not given.

    Example:
        >>> complete(torch.optim.Adam, {"lr": 0.1})["beta2"]
        0.999
    """
    parameters = list(inspect.signature(optimizer).parameters.values())[1:]
    defaults = {p.name: p.default for p in parameters}
    full = {**SCHEDULES, **defaults, **settings}
    if "betas" in full:
        full["beta1"], full["beta2"] = full.pop("betas")
    return full


def structure(optimizer: type[Optimizer], settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what trials must share to train in one stack: switches, and momentum or none.

    And the length of a warm-up in rounds, which rows and columns have (`stacked_row_column`).
    """
    full = complete(optimizer, settings)
    rounds = full["warmup_probes"] if full.get("scaling") == "row-column" else None
    switches = (full[name] for name in RULES[optimizer].switches)
    return (*switches, bool(full.get("momentum")), rounds)


def why_not_stacked(optimizer: type[Optimizer], settings: Mapping[str, Any]) -> str | None:
    """Return why a method's trials cannot be stacked, or None where they can."""
    if optimizer not in RULES:
        return f"{optimizer.__name__} has no stacked rule"
    rule, defaults = RULES[optimizer], complete(optimizer, {"lr": 0.0})
    known = {*rule.numbers, *rule.switches, *SCHEDULES}
    for name, value in complete(optimizer, settings).items():
        if name not in known and value != defaults.get(name):
            return f"the stacked {optimizer.__name__} does not know {name}={value!r}"
    return None


# Forgets nothing, limits nothing.
_NONE = {"decay": 1.0, "update_limit": math.inf, "growth_limit": math.inf}


def per_trial(rule: Rule, settings: Sequence[Mapping[str, Any]], device: torch.device) -> Numbers:
    """Return the numbers of a rule as tensors, one entry a trial; None as the number that it means.

    In double precision, as Python's own: they are rounded once, where they meet the parameters.
    """
    return {
        name: torch.tensor(
            [_NONE[name] if s[name] is None else float(s[name]) for s in settings],
            dtype=torch.float64,
            device=device,
        )
        for name in rule.numbers
    }
