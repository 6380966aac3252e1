"""Numbers on the device: so that a captured graph finds them there, and no step waits for the host.

A graph that is captured must not refer to memory that may go before it does. What is kept between
calls is therefore never used inside a capture; there, it is made anew, as a part of the graph.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor


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


def number(value: float, device: torch.device, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return one number on a device, without waiting for it; do not change it.

    Example:
        >>> number(0.5, torch.device("cpu"))
        tensor(0.5000, dtype=torch.float64)
    """
    if capturing(device):
        return torch.full((), value, dtype=dtype, device=device)
    return _remembered(value, device, dtype)


@lru_cache(maxsize=256)
def _remembered(value: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.full((), value, dtype=dtype, device=device)


def numbers(values: Sequence[float], device: torch.device) -> Tensor:
    """Return several numbers side by side on a device, without waiting; they may be captured.

    Nothing is copied from the host: the numbers are arguments of the kernels that write them.

    Example:
        >>> numbers([0.5, 2.0], torch.device("cpu"))
        tensor([0.5000, 2.0000], dtype=torch.float64)
    """
    zeros = torch.zeros(len(values), dtype=torch.float64, device=device).unbind()
    return torch.stack(torch._foreach_add(list(zeros), list(map(float, values))))
