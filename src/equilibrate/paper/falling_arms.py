"""The methods of the momentum study with a learning rate that falls to zero over the whole run.

At a constant learning rate all methods end in noise, and how much of it the last 1,000 updates take
away decides who is ahead (`momentum_arms`). Here the rate falls along half a cosine, for every
method alike. The decades lie around the best rates of both sets at a constant rate. All momenta
rise by Sutskever's schedule, but Adam's beta1; 0.9 is reached after 1,000 updates.
"""

from dataclasses import replace
from typing import Any

from equilibrate.paper.momentum_arms import MOMENTUM_ARMS
from equilibrate.study.methods import Method
from equilibrate.study.space import Choice, LogUniform

_RATES = {
    "nag": LogUniform(0.005, 0.05),
    "rmsprop": LogUniform(5e-5, 5e-4),
    "adam": LogUniform(5e-4, 5e-3),
    "jacobi": LogUniform(1e-4, 1e-3),
    "esgd": LogUniform(0.005, 0.05),
}
_MOMENTA: dict[str, dict[str, Any]] = {
    "nag": {"momentum": Choice(0.99, 0.995, 0.999)},
    "adam": {"betas": MOMENTUM_ARMS["adam"].space["betas"]},
}
_RISING: dict[str, Any] = {"momentum": Choice(0.9, 0.99, 0.995)}


def _falling(method: Method) -> Method:
    """Return an arm with a rate that falls, and its own decade of rates and three momenta."""
    fixed = {**method.fixed, "lr_schedule": "cosine"}
    if "momentum_schedule" in fixed:
        fixed["momentum_schedule"] = "sutskever"
    space = {"lr": _RATES[method.name], **_MOMENTA.get(method.name, _RISING)}
    return replace(method, space=space, fixed=fixed)


FALLING_ARMS: dict[str, Method] = {name: _falling(m) for name, m in MOMENTUM_ARMS.items()}
"""The arms, by name: as many trials each, and as wide a search, as in a round at constant rates."""
