"""Torch's generators seeded for a while, and then as they were, on every device."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the CPU's generator, and those of all GPUs where CUDA is in use; put them back.

    `torch.manual_seed` seeds every GPU, which `torch.random.fork_rng(devices=[])` does not put
    back. Where CUDA is not in use yet it leaves a seed there for later, which cannot be taken back
    at all: so that CUDA is not seeded then.

    Example:
        >>> before = torch.get_rng_state()
        >>> with seeded(3):
        ...     inside = torch.rand(2)
        >>> torch.equal(torch.get_rng_state(), before)
        True
    """
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    gpus = list(range(torch.cuda.device_count())) if in_use else []
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)
        if gpus:
            torch.cuda.manual_seed_all(seed)
        yield
