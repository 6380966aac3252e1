"""The methods a study compares: an optimizer class, what is fixed and what is searched.

The learning-rate ranges of SGD, RMSProp, Jacobi and ESGD, the damping values and RMSProp's decay
rates are the paper's (section 6). Every learning rate is searched over one decade.
"""

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer

from equilibrate.optim import ALGORITHM_1, ESGD, JacobiSGD
from equilibrate.study.space import Choice, LogUniform, Space, draw_settings


@dataclass(frozen=True)
class Method:
    """An optimizer and its search.

    Args:
        name: as given to `--methods`.
        optimizer: the class; called as optimizer(parameters, **settings).
        space: what is searched.
        fixed: the settings that every trial shares.
        label: for tables and plots; the name where it is empty.

    Two settings belong to the study, not to the optimizer: `lr_schedule` and `momentum_schedule`
    (see `schedules`).

    Example:
        >>> method = Method("nadam", torch.optim.NAdam, {"lr": LogUniform(1e-4, 1e-3)})
        >>> sorted(method.settings(trials=1)[0])
        ['lr']
    """

    name: str
    optimizer: type[Optimizer]
    space: Space
    fixed: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def settings(self, trials: int, *, seed: int = 0) -> list[dict[str, Any]]:
        """Draw the settings of a random search."""
        drawn = draw_settings(self.space, trials, name=self.name, seed=seed)
        return [{**self.fixed, **settings} for settings in drawn]


_SGD_RATES = LogUniform(0.01, 0.1)
_ADAPTIVE_RATES = LogUniform(1e-4, 1e-3)
_PAPER_DAMPING = Choice(1e-4, 1e-5, 1e-6)

# Algorithm 1 with the one product in twenty steps of the paper's experiments (section 7).
_PAPER_ESGD = {**ALGORITHM_1, "probe_every": 20}

METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Add a method to those that `compare` knows by name; the name must be free.

    Example:
        >>> method = register(Method("nadam", torch.optim.NAdam, {"lr": LogUniform(1e-4, 1e-3)}))
        >>> METHODS.pop("nadam") is method
        True
    """
    if method.name in METHODS:
        raise ValueError(f"there is a method {method.name!r} already; choose another name")
    METHODS[method.name] = method
    return method


for _method in (
    Method("sgd", torch.optim.SGD, {"lr": _SGD_RATES}, label="SGD"),
    Method(
        "nag",
        torch.optim.SGD,
        {"lr": LogUniform(1e-3, 1e-2), "momentum": Choice(0.9, 0.99, 0.995)},
        {"nesterov": True, "momentum_schedule": "sutskever"},
        label="NAG",
    ),
    Method(
        "rmsprop",
        torch.optim.RMSprop,
        {"lr": _ADAPTIVE_RATES, "alpha": Choice(0.9, 0.95)},
        label="RMSProp",
    ),
    Method("adagrad", torch.optim.Adagrad, {"lr": LogUniform(3e-3, 3e-2)}, label="AdaGrad"),
    Method(
        "adadelta",
        torch.optim.Adadelta,
        {"lr": LogUniform(0.3, 3.0), "rho": Choice(0.9, 0.95)},
        label="AdaDelta",
    ),
    Method(
        "adam",
        torch.optim.Adam,
        {"lr": _ADAPTIVE_RATES, "betas": Choice((0.9, 0.99), (0.9, 0.999))},
        label="Adam",
    ),
    Method(
        "jacobi",
        JacobiSGD,
        {"lr": _ADAPTIVE_RATES, "damping": _PAPER_DAMPING},
        {**_PAPER_ESGD, "distribution": "rademacher"},
        label="Jacobi SGD (paper)",
    ),
    Method("jacobi-shipped", JacobiSGD, {"lr": _ADAPTIVE_RATES}, label="Jacobi SGD (as shipped)"),
    Method(
        "esgd-paper",
        ESGD,
        {"lr": _SGD_RATES, "damping": _PAPER_DAMPING},
        _PAPER_ESGD,
        label="ESGD (Algorithm 1)",
    ),
    Method("esgd", ESGD, {"lr": _SGD_RATES}, label="ESGD (as shipped)"),
):
    register(_method)


def find_method(name: str) -> Method:
    """Return a method by its name, or by `module:name` a Method or any torch optimizer class.

    A class is searched over one decade around its own default learning rate.

    Example:
        >>> find_method("torch.optim:NAdam").space["lr"].decades
        1.0
    """
    if name in METHODS:
        return METHODS[name]
    module, _, attribute = name.partition(":")
    if not attribute or not all(module.split(".")):  # no module, or a relative one
        raise ValueError(
            f"no method {name!r}; there are {', '.join(METHODS)}, and others are module:name, such "
            f"as torch.optim:NAdam"
        )
    found = getattr(importlib.import_module(module), attribute, None)
    if isinstance(found, Method):
        return found
    if isinstance(found, type) and issubclass(found, Optimizer):
        return Method(name, found, {"lr": _around_default(found)}, label=attribute)
    raise ValueError(f"{name} is neither a Method nor a torch optimizer class")


def _around_default(optimizer: type[Optimizer]) -> LogUniform:
    rate = inspect.signature(optimizer).parameters.get("lr")
    default = rate.default if rate else None
    if not isinstance(default, float):
        raise ValueError(
            f"{optimizer.__name__} has no default learning rate to search around; write a Method "
            f"with a range and name it as module:name"
        )
    half = 10**0.5
    return LogUniform(default / half, default * half)
