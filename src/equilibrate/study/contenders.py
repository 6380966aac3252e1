"""Who may be compared: methods by name, each with as wide a range of learning rates as any other.

A range that is narrow for one method and wide for another decides a comparison before it begins. So
every learning rate is searched over `DECADES` powers of ten, with the usual rates of its method in
the middle. The paper's ranges, one decade each, stay in `methods` for the paper's own studies.
"""

import importlib
import inspect
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from equilibrate.optim import ESGD
from equilibrate.rivals.muon import MuonAdamW
from equilibrate.rivals.soap import MissingRival, make_soap
from equilibrate.study.fingerprint import described
from equilibrate.study.meant import did_you_mean
from equilibrate.study.methods import METHODS, Method
from equilibrate.study.naming import digest
from equilibrate.study.own import is_known
from equilibrate.study.space import LogUniform

DECADES = 3.0
"""The width of every method's range of learning rates, in powers of ten."""

# Where the learning rates of each usually lie: between the paper's and the optimizer's default.
_MIDDLES = {
    "sgd": 0.03,
    "nag": 3e-3,
    "rmsprop": 1e-3,
    "adagrad": 0.01,
    "adadelta": 1.0,
    "adam": 1e-3,
    "jacobi": 1e-3,
    "jacobi-shipped": 1e-3,
    "esgd-paper": 0.03,
    "esgd": 0.03,
}


class MethodError(ValueError):
    """Raised where a method cannot be found or cannot train; the text says what to do."""


def rates_around(middle: float) -> LogUniform:
    """Return learning rates around one, as wide as every method's.

    Example:
        >>> rates_around(0.03), round(rates_around(0.03).decades, 6)
        (LogUniform(low=0.00095, high=0.95), 3.0)
    """
    half = 10 ** (DECADES / 2)
    return LogUniform(float(f"{middle / half:.2g}"), float(f"{middle * half:.2g}"))


def _make_soap(parameters: Iterable[Tensor], lr: float = 3e-3, **settings: Any) -> Optimizer:
    """Return SOAP from its package, or say how to get it."""
    try:
        return make_soap(parameters, lr=lr, **settings)
    except MissingRival as error:
        raise MethodError(
            "SOAP comes from the package pytorch-optimizer: pip install 'equilibrate[wins]'"
        ) from error


_NESTEROV = {"momentum": 0.9, "nesterov": True}
_SOAP = cast(type[Optimizer], _make_soap)  # imports its package when it is called

_CONTENDERS = (
    *(
        replace(METHODS[name], space={**METHODS[name].space, "lr": rates_around(middle)})
        for name, middle in _MIDDLES.items()
    ),
    Method("esgd-nesterov", ESGD, {"lr": rates_around(0.03)}, _NESTEROV, "ESGD + Nesterov"),
    Method("adamw", torch.optim.AdamW, {"lr": rates_around(1e-3)}, label="AdamW"),
    Method("muon", MuonAdamW, {"lr": rates_around(1e-3)}, label="Muon + AdamW"),
    Method("soap", _SOAP, {"lr": rates_around(3e-3)}, label="SOAP"),
)

CONTENDERS: dict[str, Method] = {method.name: method for method in _CONTENDERS}
"""The methods that `compare` knows by name."""


def register(method: Method) -> Method:
    """Add a method to those that `compare` knows by name; the name must be free.

    Example:
        >>> method = register(Method("nadam", torch.optim.NAdam, {"lr": LogUniform(1e-4, 1e-3)}))
        >>> CONTENDERS.pop("nadam") is method
        True
    """
    if method.name in CONTENDERS:
        raise ValueError(f"there is a method {method.name!r} already; choose another name")
    CONTENDERS[method.name] = method
    return method


def find_method(name: str) -> Method:
    """Return a method by its name, or by `module:name` a Method or any torch optimizer class.

    A class is searched around its own default learning rate, SGD where `sgd` is.

    Example:
        >>> find_method("torch.optim:NAdam").space["lr"]
        LogUniform(low=6.3e-05, high=0.063)
    """
    if name in CONTENDERS:
        return CONTENDERS[name]
    module, _, attribute = name.partition(":")
    if not attribute or not all(module.split(".")):  # no module, or a relative one
        meant = did_you_mean(name, CONTENDERS, [f"torch.optim:{n}" for n in _named(torch.optim)])
        raise MethodError(
            f"no method {name!r}; {meant}there are {', '.join(CONTENDERS)}, and others are "
            f"module:name, such as torch.optim:NAdam"
        )
    there = importlib.import_module(module.removesuffix(".py"))
    found = getattr(there, attribute, None)
    if isinstance(found, Method):
        return found
    if _is_optimizer(found):
        return Method(name, found, {"lr": _rates_of(found)}, label=attribute)
    meant = did_you_mean(attribute, _named(there))
    raise MethodError(
        f"{name} is neither a Method nor a torch optimizer class; {meant}a class is written as "
        f"torch.optim:NAdam is"
    )


def _named(module: object) -> list[str]:
    """Return the names of the methods and optimizer classes in a module."""
    return [name for name, thing in vars(module).items()
            if isinstance(thing, Method) or _is_optimizer(thing)]  # fmt: skip


def _is_optimizer(thing: object) -> TypeGuard[type[Optimizer]]:
    return isinstance(thing, type) and issubclass(thing, Optimizer)


def code_of(method: Method) -> str:
    """Return what tells a user's method from another of its name, for the keys of its trials.

    Nothing where the name says it: for a method known here with its own optimizer, and for a class
    of torch's or of this package's that is named as module:name.

    Example:
        >>> code_of(CONTENDERS["adam"]), code_of(find_method("torch.optim:NAdam"))
        ('', '')
        >>> code_of(Method("adam", torch.optim.NAdam, {})) != ""
        True
    """
    optimizer = method.optimizer
    by_class = method.name.endswith(f":{getattr(optimizer, '__name__', '')}")
    named = by_class or any(c.name == method.name and c.optimizer is optimizer for c in _CONTENDERS)
    return "" if named and is_known(optimizer) else digest(described(optimizer))[:16]


def _rates_of(optimizer: type[Optimizer]) -> LogUniform:
    if optimizer is torch.optim.SGD:  # whose default, 0.001, is far below its usual rates
        return rates_around(_MIDDLES["sgd"])
    rate = inspect.signature(optimizer).parameters.get("lr")
    default = rate.default if rate else None
    if not isinstance(default, int | float) or not default > 0:
        raise MethodError(
            f"{optimizer.__name__} has no default learning rate to search around; write a Method "
            f"with a range and name it as module:name"
        )
    return rates_around(default)
