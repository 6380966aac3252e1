"""The precision a trial computes in."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def dtype_of(precision: str) -> torch.dtype:
    """Return the dtype of the parameters: float64, or float32 for all the others."""
    return torch.float64 if precision == "float64" else torch.float32


@contextmanager
def computing(precision: str) -> Iterator[None]:
    """Compute in a precision: tf32 and bfloat16 shorten the factors of matrix products on a GPU.

    Outside of this context torch's own settings are as they were.
    """
    earlier = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(earlier)


@contextmanager
def forward(precision: str, device: torch.device) -> Iterator[None]:
    """Run a network's forward pass: under autocast for bfloat16, as it is otherwise."""
    # Without the cache of casted weights: a captured graph must cast the weights at every replay.
    with torch.autocast(
        device.type, torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=False
    ):
        yield
