"""What tells one problem from another in the keys of its trials: content, never an address."""

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

_PLAIN = (bool, int, float, str, type(None))

Described = str | list[Any]


def described(measure: Callable[..., Any]) -> Described:
    """Return what a loss computes, as text: its source, and the numbers that it holds.

    A function that holds none is its source alone. What is neither a number, a text nor a tensor
    does not count.

    Example:
        >>> one, other = nn.HuberLoss(delta=1.0), nn.HuberLoss(delta=0.1)
        >>> described(one) == described(other), described(one) == described(nn.HuberLoss())
        (False, True)
    """
    if isinstance(measure, functools.partial):
        return ["partial", described(measure.func), *map(_held, measure.args),
                *_values(measure.keywords)]  # fmt: skip
    if isinstance(measure, nn.Module):
        parts = [[_source(type(part)), *_values(vars(part))] for part in measure.modules()]
        return [repr(measure), *parts, *map(content, measure.state_dict().values())]
    if inspect.ismethod(measure):
        return [_source(measure), *_values(vars(measure.__self__))]
    if inspect.isroutine(measure):
        held = _values(inspect.getclosurevars(measure).nonlocals) if _closes(measure) else []
        return [_source(measure), *held] if held else _source(measure)
    return [_source(type(measure)), *_values(getattr(measure, "__dict__", {}))]


def content(tensor: Tensor) -> str:
    """Return the dtype, the shape and a hash of the numbers of a tensor."""
    flat = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    shape = f"{tensor.dtype}{tuple(tensor.shape)}"
    return shape + hashlib.sha256(flat.tobytes()).hexdigest()


def _values(named: Mapping[str, Any]) -> list[Any]:
    """Return the names and values of what can be told by its content."""
    pairs = [(name, _held(value)) for name, value in sorted(named.items())]
    return [[name, value] for name, value in pairs if value is not None]


def _held(value: Any) -> Any:
    """Return a value in an argument or attribute as text, None where it cannot be told."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Tensor):
        return content(value)
    if isinstance(value, tuple | list):
        return [_held(each) for each in value]
    if isinstance(value, functools.partial | nn.Module):
        return described(value)
    return _source(value) if inspect.isroutine(value) else None


def _closes(function: Any) -> bool:
    return bool(getattr(function, "__closure__", None))


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # a built-in: its name must do
        return getattr(thing, "__qualname__", type(thing).__qualname__)
