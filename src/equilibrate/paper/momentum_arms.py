"""The methods of the momentum study: one decade of learning rate and three momenta each, twice.

Every arm has a grid of as many learning rates as momenta. Nine random draws from two ranges would
leave holes, and other holes for every arm. A momentum is 0.9, 0.95 or 0.99 (Adam calls it beta1).
NAG has the three largest of Sutskever's five and his schedule, which rises to them.

The second round was added when the first was known. There NAG was ahead, and a constant momentum
of 0.99 killed or slowed RMSProp, Jacobi and ESGD from their first updates on. So they have NAG's
momenta and schedule, at the learning rates they had; NAG, which has it, and Adam, which has no sum
of steps to put on it, have as many trials in the next decade of learning rates, for their best ones
were the highest.

In the last 1,000 updates no momentum exceeds 0.9, as in Sutskever et al. 2013. That makes the steps
of a momentum of 0.99 ten times smaller and does nothing for one of 0.9, nor for Adam, whose average
does not add steps up; so every arm also takes a tenth of its learning rate there. ESGD is as
shipped.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from equilibrate.optim import ESGD, JacobiSGD
from equilibrate.paper.arm_records import arms_of
from equilibrate.paper.arms import EVERY_20
from equilibrate.study.methods import Method
from equilibrate.study.space import Choice, LogUniform

_MOMENTUM = Choice(0.9, 0.95, 0.99)
_RISING = Choice(0.99, 0.995, 0.999)
_SMALLER = {"lr_schedule": "ending"}
_ENDING = {**_SMALLER, "momentum_schedule": "ending"}
_NESTEROV = {**_ENDING, "nesterov": True}

MOMENTUM_ARMS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "nag",
            torch.optim.SGD,
            {"lr": LogUniform(0.002, 0.02), "momentum": _RISING},
            {**_SMALLER, "nesterov": True, "momentum_schedule": "sutskever"},
            label="NAG, Sutskever's schedule",
        ),
        Method(
            "rmsprop",
            torch.optim.RMSprop,
            {"lr": LogUniform(5e-5, 5e-4), "momentum": _MOMENTUM},
            {**_ENDING, "alpha": 0.95, "eps": 1e-5},
            label="RMSProp + momentum",
        ),
        Method(
            "adam",
            torch.optim.Adam,
            {
                "lr": LogUniform(1e-4, 1e-3),
                "betas": Choice(*((beta1, 0.999) for beta1 in _MOMENTUM.values)),
            },
            _SMALLER,
            label="Adam",
        ),
        Method(
            "jacobi",
            JacobiSGD,
            {"lr": LogUniform(3e-5, 3e-4), "momentum": _MOMENTUM},
            {**EVERY_20, **_NESTEROV, "distribution": "rademacher"},
            label="Jacobi SGD + Nesterov",
        ),
        Method(
            "esgd",
            ESGD,
            {"lr": LogUniform(0.003, 0.03), "momentum": _MOMENTUM},
            _NESTEROV,
            label="ESGD + Nesterov",
        ),
    )
}

_HIGHER = {"nag": LogUniform(0.02, 0.2), "adam": LogUniform(1e-3, 1e-2)}


def _again(method: Method) -> Method:
    """Return an arm as the second round has it."""
    if method.name in _HIGHER:
        return replace(method, space={**method.space, "lr": _HIGHER[method.name]})
    rising = {**method.fixed, "momentum_schedule": "sutskever"}
    return replace(method, space={**method.space, "momentum": _RISING}, fixed=rising)


ROUNDS = (MOMENTUM_ARMS, {name: _again(method) for name, method in MOMENTUM_ARMS.items()})
"""The arms of both rounds of the search."""

momentum_arms = partial(arms_of, methods=MOMENTUM_ARMS, long_seeds=True)
"""The arms of records of this study, on a task."""


def grid(method: Method, rates: int) -> list[dict[str, Any]]:
    """Return an arm's settings: every momentum with the centres of equal parts of its decade.

    Example:
        >>> [own["lr"] for own in grid(MOMENTUM_ARMS["esgd"], 3)[:4]]
        [0.004403, 0.009487, 0.02044, 0.004403]
    """
    (name,) = method.space.keys() - {"lr"}
    decade, momenta = method.space["lr"], method.space[name]
    assert isinstance(decade, LogUniform)
    assert isinstance(momenta, Choice)
    parts = [(2 * part + 1) / (2 * rates) for part in range(rates)]
    found = [float(f"{decade.low * 10 ** (decade.decades * part):.4g}") for part in parts]
    return [{**method.fixed, "lr": lr, name: value} for value in momenta.values for lr in found]


PLAIN = {"nag": "sgd", "rmsprop": "rmsprop", "jacobi": "jacobi", "esgd": "esgd"}
"""The arm of Figure 3 that each of these is without momentum."""

QUICK_SETTINGS: dict[str, dict[str, Any]] = {
    "nag": {"lr": 0.006, "momentum": 0.99},
    "rmsprop": {"lr": 3e-4, "momentum": 0.9},
    "adam": {"lr": 5e-4, "betas": (0.9, 0.999)},
    "jacobi": {"lr": 1e-4, "momentum": 0.9},
    "esgd": {"lr": 0.018, "momentum": 0.9},
}
"""One setting an arm for quick runs, inside the search; nothing else is known of them."""
