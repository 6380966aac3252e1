"""What a monitor is given, checked when it is made: the first record is far from that line."""

from collections.abc import Iterable
from os import PathLike
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

Named = Iterable[tuple[str, Tensor]]

_SEVERAL = (
    "A Monitor watches one optimizer, got {}. Make one for each, of the same model and with a sink "
    'of its own, Monitor(model, first, JSONLines("first.jsonl")) and Monitor(model, second, '
    'JSONLines("second.jsonl")), and call both with the loss.'
)
_NO_OPTIMIZER = (
    "The optimizer must be one of torch's, got {}. The order is Monitor(model, optimizer, sink)."
)


def named_parameters(model: nn.Module | Named) -> list[tuple[str, Tensor]]:
    """Return the (name, parameter) pairs of a model, or those that were given.

    Example:
        >>> named_parameters(nn.Linear(2, 1).parameters())
        Traceback (most recent call last):
            ...
        TypeError: The parameters have no names here. Pass the model itself: Monitor(model, ...).
    """
    if isinstance(model, nn.Module):
        return list(model.named_parameters())
    try:
        found: list[Any] = list(model)
    except TypeError:
        raise TypeError(
            f"The model must be a torch.nn.Module, got {type(model).__name__}. Pass the model "
            "itself: Monitor(model, optimizer, sink)."
        ) from None
    if not all(_is_pair(each) for each in found):
        raise TypeError(
            "The parameters have no names here. Pass the model itself: Monitor(model, ...)."
        )
    return found


def check_kinds(optimizer: Optimizer, sink: object) -> None:
    """Raise for an optimizer or a sink that would fail at the first record."""
    if isinstance(optimizer, (list, tuple, set, dict)):
        raise TypeError(_SEVERAL.format(f"a {type(optimizer).__name__}"))
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(_NO_OPTIMIZER.format(type(optimizer).__name__))
    if isinstance(sink, (str, PathLike)):
        raise TypeError(
            f"The sink must be callable, got {sink!r}. To write records to that file pass "
            f'JSONLines("{sink}").'
        )
    if not callable(sink):
        raise TypeError(
            f"The sink must be callable with a dict, got {type(sink).__name__}. Pass "
            'JSONLines("run.jsonl"), or the append of a list.'
        )


def _is_pair(each: Any) -> bool:
    return (
        isinstance(each, (tuple, list))
        and len(each) == 2
        and isinstance(each[0], str)
        and isinstance(each[1], Tensor)
    )
