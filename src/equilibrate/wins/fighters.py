"""Who fights, and with what: one learning rate each is searched, all else is as shipped.

Every fighter's range is one decade to either side of a centre, written here before the first trial:
the default or the usual learning rate of each. Nobody decays weights, for nothing here is
regularised. All follow the schedule of the fight, but for L-BFGS, whose line search it would only
mislead.
"""

import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.optim import Optimizer

from equilibrate.optim import ESGD
from equilibrate.rivals.lbfgs import LBFGS
from equilibrate.rivals.muon import MuonAdamW
from equilibrate.rivals.soap import make_soap
from equilibrate.study.methods import Method
from equilibrate.study.space import LogUniform

OURS = "esgd"
"""The fighter that the others are rivals of."""

BASELINE = "adamw"
"""The rival whose final error is the target that all are timed to."""

_SHIPPED = inspect.signature(ESGD).parameters
SHIPPED_RATE = float(_SHIPPED["lr"].default)
"""The learning rate of ours where nobody searches one."""

SHIPPED_GROWTH: float | None = _SHIPPED["growth_limit"].default
"""The growth limit of ours (`optim.growth`); it joins the settings of a trial where it is on."""


def _method(
    name: str, optimizer: type[Optimizer], centre: float, label: str, **fixed: Any
) -> Method:
    return Method(name, optimizer, {"lr": LogUniform(centre / 10, centre * 10)}, fixed, label)


def make_esgd(params: Any, *, growth_limit: float | None = None, **settings: Any) -> ESGD:
    """Return an ESGD that is limited only where its settings say so.

    The first fights were fought before there was a limit: settings without one mean none.
    """
    return ESGD(params, growth_limit=growth_limit, **settings)


_ESGD = cast(type[Optimizer], make_esgd)


def _esgd(name: str, label: str, **fixed: Any) -> Method:
    return _method(name, _ESGD, 0.1, label, **fixed)


_SOAP = cast(type[Optimizer], make_soap)  # imports its package when it is called
_NESTEROV = {"momentum": 0.9, "nesterov": True}

FIGHTERS: dict[str, Callable[[], Method]] = {
    "esgd": lambda: _esgd("esgd", "ESGD + Nesterov", **_NESTEROV),
    "esgd-plain": lambda: _esgd("esgd-plain", "ESGD, no momentum"),
    "esgd-row-column": lambda: _esgd(
        "esgd-row-column",
        "ESGD + Nesterov, rows and columns, undamped",
        scaling="row-column",
        damping=0.0,
        **_NESTEROV,
    ),
    "adamw": lambda: _method("adamw", torch.optim.AdamW, 1e-3, "AdamW", weight_decay=0.0),
    "nadam": lambda: _method("nadam", torch.optim.NAdam, 1e-3, "NAdam"),
    "rmsprop": lambda: _method("rmsprop", torch.optim.RMSprop, 1e-3, "RMSProp"),
    "muon": lambda: _method("muon", MuonAdamW, 1e-3, "Muon + AdamW"),
    "soap": lambda: _method("soap", _SOAP, 3e-3, "SOAP", weight_decay=0.0),
    "lbfgs": lambda: _method("lbfgs", LBFGS, 1.0, "L-BFGS", lr_schedule="constant"),
}
"""By name."""

USUAL = ("esgd", "adamw", "nadam", "rmsprop", "muon", "soap")
"""Who fights on a problem with noise."""


def is_ours(fighter: str) -> bool:
    """Tell a form of ESGD from a rival."""
    return fighter.split("-")[0] == OURS
