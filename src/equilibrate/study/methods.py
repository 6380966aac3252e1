"""The methods a study compares: an optimizer class, what is fixed and what is searched.

The learning-rate ranges of SGD, RMSProp, Jacobi and ESGD, the damping values and RMSProp's decay
rates in `METHODS` are the paper's (section 6): one decade of learning rates each, for recorded
studies. `equilibrate compare` searches wider ones (`contenders`).
"""

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

_METHODS = (
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
)

METHODS: dict[str, Method] = {method.name: method for method in _METHODS}
"""By name."""
