"""Numbers on the device: so that a captured graph finds them there, and no step waits for the host.

A graph that is captured must not refer to memory that may go before it does. What was made before a
capture, and is used in it, is therefore kept for good; what is new there is a part of the graph.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Made = TypeVar("Made")

_in_graphs: dict[int, Any] = {}


def capturing(device: torch.device) -> bool:
    """Tell whether what is launched now is being captured in a graph.

    Example:
        >>> capturing(torch.device("cpu"))
        False
    """
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def runs_kernels(device: torch.device) -> bool:
    """Tell whether fused steps run as Triton kernels there.

    Example:
        >>> runs_kernels(torch.device("cpu"))
        False
    """
    return device.type == "cuda"


def is_host(device: torch.device) -> bool:
    """Tell whether tensors lie where the host computes, so that reading a number waits for nothing.

    Example:
        >>> is_host(torch.device("cpu"))
        True
    """
    return device.type == "cpu"


def keep(held: Made, within: bool) -> Made:
    """Return something that was made outside of any graph; `within` one, it stays for good.

    That is a few kilobytes for a graph: nobody tells when a graph is gone.

    Example:
        >>> keep("a table", within=False)
        'a table'
    """
    if within:
        _in_graphs[id(held)] = held
    return held


class Remembered(Generic[Made]):
    """What a function has made on a device, as many results as were made last.

    In a capture, what was made before is taken as it is, and costs a replay nothing. What is new
    there is made by the graph, in every replay, and not remembered: it lives with the graph.

    Example:
        >>> square = Remembered(lambda x: x * x, most=2)
        >>> square(3, within=False), len(square)
        (9, 1)
    """

    def __init__(self, make: Callable[..., Made], most: int) -> None:
        """Take the function."""
        self._make, self._most = make, most
        self._made: dict[Any, Made] = {}  # in the order in which they were made

    def __call__(self, *key: Any, within: bool) -> Made:
        """Return what the function makes of these arguments, `within` a capture or outside."""
        known = self._made.get(key)
        if known is not None:
            return keep(known, within) if within else known
        made = self._make(*key)
        if not within:
            self._made[key] = made
            if len(self._made) > self._most:
                self._made.pop(next(iter(self._made)), None)
        return made

    def __len__(self) -> int:
        """Return how many results are remembered."""
        return len(self._made)


def number(value: float, device: torch.device, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return one number on a device, without waiting for it; do not change it.

    Example:
        >>> number(0.5, torch.device("cpu"))
        tensor(0.5000, dtype=torch.float64)
    """
    return _number(value, dtype, device, within=capturing(device))


def _filled(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((), value, dtype=dtype, device=device)


_number = Remembered(_filled, most=256)


def numbers(values: Sequence[float], device: torch.device) -> Tensor:
    """Return several numbers side by side on a device, without waiting; they may be captured.

    Nothing is copied from the host: the numbers are arguments of the kernels that write them.

    Example:
        >>> numbers([0.5, 2.0], torch.device("cpu"))
        tensor([0.5000, 2.0000], dtype=torch.float64)
    """
    zeros = torch.zeros(len(values), dtype=torch.float64, device=device).unbind()
    return torch.stack(torch._foreach_add(list(zeros), list(map(float, values))))
