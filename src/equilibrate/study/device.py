"""Whether the device that a command was asked to use is there."""

import torch


class DeviceError(ValueError):
    """Raised where torch does not find the device that was asked for; the text says what to do."""


def check_device(name: str) -> None:
    """Raise DeviceError where "cuda" is asked for and torch finds none.

    Example:
        >>> check_device("cpu")
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise DeviceError("torch finds no CUDA device here; leave --device cuda out")
