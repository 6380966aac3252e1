"""The methods of the momentum study with a learning rate that falls to zero over the whole run.

At a constant learning rate all methods end in noise, and how much of it the last 1,000 updates take
away decides who is ahead (`momentum_arms`). Here the rate falls along half a cosine, for every
method alike. The decades lie around the best rates of both sets at a constant rate. All momenta
rise by Sutskever's schedule, but Adam's beta1; 0.9 is reached after 1,000 updates.

The second round was added when the first was known. There ESGD led along the long runs and was
overtaken by NAG. So ESGD has a floor under the mean of D (`optim.mean_floor`) and learning rates
from its largest one on; Jacobi has the floor too, with the warm-up and the forgetting of
`JacobiSGD` as shipped, which the floor needs, and momenta below those that killed it. The others
have as many trials where the first round points: NAG rates and momenta between those it had,
RMSProp lower rates, Adam higher rates and smaller momenta.

The third round was added when the first two were known, and Figure 3 beside them, where a longer
memory lowered ESGD's error. ESGD flattened late in both. Its D averages some 25 probes, as shipped,
and small elements suffer most from their noise: so it remembers four times as long and is damped
thirty times as much, which is also nearer to NAG, and has no floor. The others that remember have a
longer memory too, and more damping: Jacobi the same two numbers; RMSProp 2,000 steps instead of 20
and ten times its eps; Adam 10,000 steps instead of 1,000 and a hundred times its eps. NAG has as
many trials more around its best.
"""

from collections.abc import Mapping
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

_AGAIN: dict[str, dict[str, Any]] = {
    "nag": {"lr": LogUniform(0.004, 0.04), "momentum": Choice(0.98, 0.9925, 0.9975)},
    "rmsprop": {"lr": LogUniform(1e-5, 1e-4), "momentum": Choice(0.98, 0.99, 0.995)},
    "adam": {
        "lr": LogUniform(1.5e-3, 1.5e-2),
        "betas": Choice(*((beta1, 0.999) for beta1 in (0.7, 0.8, 0.9))),
    },
    "jacobi": {"lr": LogUniform(3e-4, 3e-3), "momentum": Choice(0.8, 0.9, 0.95)},
    "esgd": {"lr": LogUniform(0.02, 0.2), **_RISING},
}
_OWN = ("nesterov", "lr_schedule", "momentum_schedule")  # of Jacobi; all else as shipped


def _again(method: Method) -> Method:
    """Return an arm as the second round has it."""
    fixed = method.fixed
    if method.name == "jacobi":
        fixed = {name: fixed[name] for name in _OWN}
    if method.name in ("jacobi", "esgd"):
        fixed = {**fixed, "mean_floor": True}
    return replace(method, space=_AGAIN[method.name], fixed=fixed)


_LONG, _LONGEST = 0.9995, 0.9999  # memories of 2,000 and 10,000 steps
_REMEMBERS = {"decay": _LONG, "damping": 0.3}
_LONGER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nag": ({"lr": LogUniform(0.006, 0.06), "momentum": Choice(0.985, 0.9925, 0.995)}, {}),
    "rmsprop": (
        {"lr": LogUniform(3e-5, 3e-4), "momentum": Choice(0.9, 0.98, 0.99)},
        {"alpha": _LONG, "eps": 1e-4},
    ),
    "adam": (
        {
            "lr": LogUniform(7e-4, 7e-3),
            "betas": Choice(*((beta1, _LONGEST) for beta1 in (0.8, 0.9, 0.95))),
        },
        {"eps": 1e-6},
    ),
    "jacobi": ({"lr": LogUniform(3e-4, 3e-3), "momentum": Choice(0.9, 0.95, 0.98)}, _REMEMBERS),
    "esgd": ({"lr": LogUniform(0.01, 0.1), "momentum": Choice(0.9, 0.95, 0.99)}, _REMEMBERS),
}


def _longer(method: Method) -> Method:
    """Return an arm as the third round has it."""
    space, own = _LONGER[method.name]
    fixed = method.fixed
    if method.name == "jacobi":
        fixed = {name: fixed[name] for name in _OWN}
    return replace(method, space=space, fixed={**fixed, **own})


FALLING_ROUNDS = (
    FALLING_ARMS,
    {name: _again(arm) for name, arm in FALLING_ARMS.items()},
    {name: _longer(arm) for name, arm in FALLING_ARMS.items()},
)
"""The arms of all rounds."""


def remembers(settings: Mapping[str, Any]) -> bool:
    """Tell whether a trial has the longer memory of the third round.

    Example:
        >>> remembers({"decay": 0.9995}), remembers({"betas": (0.9, 0.999)}), remembers({})
        (True, False, False)
    """
    long = settings.get("decay"), settings.get("alpha"), settings.get("betas", (0, 0))[1]
    return not {_LONG, _LONGEST}.isdisjoint(long)
