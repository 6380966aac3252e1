"""What tells one problem from another in the keys of its trials: content, never an address.

What is torch's or this package's is told by its source and by the plain values that it holds; this
never changes, for published records are found by it. Code of the user's own is followed further: to
the functions, classes and constants that it uses, wherever these are the user's own as well.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Set
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from equilibrate.study.naming import canonical
from equilibrate.study.own import (
    closed_over,
    is_own,
    members,
    name_of,
    reached,
    slots,
    text_of,
)

_PLAIN = (bool, int, float, str, type(None))
_MACHINERY = {name for name, held in vars(nn.Module()).items() if isinstance(held, dict | set)}
_HOOKS = sorted(name for name in _MACHINERY if name.endswith("_hooks"))

Described = str | list[Any]


def described(thing: Callable[..., Any]) -> Described:
    """Return what a loss computes, or an optimizer does, as text and lists of texts.

    Example:
        >>> one, other = nn.HuberLoss(delta=1.0), nn.HuberLoss(delta=0.1)
        >>> described(one) == described(other), described(one) == described(nn.HuberLoss())
        (False, True)
    """
    found: Described = _Description().of(thing)
    return found


def architecture(network: nn.Module) -> list[Any]:
    """Return what the user's own modules in a network do, hold, and hang on to torch's.

    Nothing for a network that is built of torch's and this package's modules alone.

    Example:
        >>> architecture(nn.Sequential(nn.Linear(2, 3), nn.Tanh()))
        []
    """
    description = _Description()
    parts = [[name, *description.of_part(part)] for name, part in network.named_modules()]
    return [part for part in parts if len(part) > 1]


def content(tensor: Tensor) -> str:
    """Return the dtype, the shape and a hash of the numbers of a tensor."""
    flat = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    shape = f"{tensor.dtype}{tuple(tensor.shape)}"
    return shape + hashlib.sha256(flat.tobytes()).hexdigest()


class _Description:
    """One walk through what a thing is made of; what is met again is told by its number."""

    def __init__(self) -> None:
        self.met: dict[int, Any] = {}  # the things themselves, so that no address is used twice

    def of(self, thing: Any) -> Any:
        """Return what a callable does."""
        if isinstance(thing, functools.partial):
            return ["partial", self.of(thing.func), *map(self.held, thing.args),
                    *self.values(thing.keywords)]  # fmt: skip
        if isinstance(thing, nn.Module):
            return self.once(thing, self.module)
        if is_own(thing):
            return self.once(thing, self.own)
        if inspect.ismethod(thing):
            return [_source(thing), *self.attributes(thing.__self__)]
        if inspect.isroutine(thing):
            held = self.values(inspect.getclosurevars(thing).nonlocals) if _closes(thing) else []
            held += self.wrapped(thing)
            return [_source(thing), *held] if held else _source(thing)
        if isinstance(thing, type):
            return name_of(thing)
        return [_source(type(thing)), *self.attributes(thing), *self.wrapped(thing)]

    def module(self, module: nn.Module) -> list[Any]:
        parts = []
        for part in module.modules():
            kind = self.of(type(part)) if is_own(type(part)) else _source(type(part))
            parts.append([kind, *self.attributes(part), *self.fixed(part)])
        return [repr(module), *parts, *map(content, module.state_dict().values())]

    def of_part(self, part: nn.Module) -> list[Any]:
        """Return what a module adds to what its network prints and saves."""
        if is_own(type(part)):
            return [self.of(type(part)), *self.attributes(part), *self.fixed(part)]
        owned = {name: held for name, held in vars(part).items() if is_own(held)}
        return [*self.values(owned), *self.fixed(part)]

    def fixed(self, part: nn.Module) -> list[Any]:
        """Return buffers that are not saved, and hooks of the user's own."""
        names = sorted(part._non_persistent_buffers_set)
        buffers = [[name, self.held(part._buffers[name])] for name in names]
        hooks = [hook for name in _HOOKS for hook in getattr(part, name).values()]
        return [*buffers, *(self.of(hook) for hook in hooks if is_own(hook))]

    def own(self, thing: Any) -> Any:
        """Return what the user's own function, class, module or object is."""
        if inspect.ismethod(thing):
            return [self.of(thing.__func__), self.held(thing.__self__)]
        if isinstance(thing, FunctionType):
            return self.function(thing)
        if isinstance(thing, type):
            parents = [self.of(base) for base in thing.__bases__]
            return [thing.__qualname__, parents, *self.values(members(thing))]
        return [self.of(type(thing)), *self.attributes(thing)]

    def function(self, function: FunctionType) -> list[Any]:
        code = function.__code__
        return [
            text_of(code),
            self.held(function.__defaults__),
            self.values(function.__kwdefaults__ or {}),
            self.values(closed_over(function)),
            self.values(reached(function)),
            *self.wrapped(function),
        ]

    def wrapped(self, thing: Any) -> list[Any]:
        """Return the user's own function that a decorator of another's stands around."""
        inner = getattr(thing, "__wrapped__", None)
        return [self.of(inner)] if inner is not None and is_own(inner) else []

    def attributes(self, thing: Any) -> list[Any]:
        """Return what an object holds; of torch's and this package's what was always told."""
        named = {k: v for k, v in getattr(thing, "__dict__", {}).items() if k not in _MACHINERY}
        if is_own(type(thing)):
            return self.values({**named, **slots(thing)})
        told = (*_PLAIN, Tensor, tuple, list, functools.partial, nn.Module)
        kept = {
            name: held for name, held in named.items()
            if isinstance(held, told) or inspect.isroutine(held) or is_own(held)
        }  # fmt: skip
        return self.values(kept)

    def values(self, named: Mapping[str, Any]) -> list[Any]:
        """Return the names and values of what can be told by its content."""
        pairs = [(name, self.held(value)) for name, value in sorted(named.items())]
        return [[name, value] for name, value in pairs if value is not None]

    def held(self, value: Any) -> Any:
        """Return a value in an argument, attribute or constant; None where it cannot be told."""
        if isinstance(value, _PLAIN):
            return repr(value)
        if isinstance(value, Tensor):
            return content(value)
        if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
            return self.array(value)
        if isinstance(value, tuple | list):
            return [self.held(each) for each in value]
        if isinstance(value, Mapping | Set):
            return self.once(value, self.unordered)
        if isinstance(value, functools.partial | nn.Module) or is_own(value):
            return None if isinstance(value, ModuleType) else self.of(value)
        if inspect.isroutine(value):
            inner = self.wrapped(value)
            return [_source(value), *inner] if inner else _source(value)
        return self.others(value)

    def array(self, array: Any) -> Any:
        if array.dtype.hasobject:
            return self.held(array.tolist())
        return f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()}"

    def unordered(self, value: Mapping[Any, Any] | Set[Any]) -> list[Any]:
        items: Iterable[Any] = value.items() if isinstance(value, Mapping) else value
        return sorted(map(self.held, items), key=canonical)

    def others(self, value: Any) -> Any:
        """Return a class or object of another's: its name, and what it prints but an address."""
        if isinstance(value, ModuleType):
            return None
        if isinstance(value, type):
            return name_of(value)
        text = repr(value)
        return [name_of(type(value)), *([] if " at 0x" in text else [text]), *self.wrapped(value)]

    def once(self, thing: Any, tell: Callable[[Any], Any]) -> Any:
        if id(thing) in self.met:
            return f"number {list(self.met).index(id(thing))}"
        self.met[id(thing)] = thing
        return tell(thing)


def _closes(function: Any) -> bool:
    return bool(getattr(function, "__closure__", None))


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # a built-in: its name must do
        return getattr(thing, "__qualname__", type(thing).__qualname__)
