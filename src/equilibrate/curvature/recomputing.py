"""Forward passes that activation checkpoints run again for a product: they leave no statistics."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
Kept = dict[tuple[nn.Module, str], Tensor]


def set_aside(module: nn.Module, kept: Kept) -> None:
    """Let copies of a module's running statistics take part in its passes, and keep themselves.

    They may not be written and put back in place: the graph of a pass holds on to them.
    """
    for name in STATISTICS:
        buffer = module._buffers.get(name)
        if buffer is not None and (module, name) not in kept:
            kept[module, name] = buffer
            with _disable_current_modes():  # a selective checkpoint looks for what it has seen
                module._buffers[name] = buffer.clone()


def put_back(kept: Kept) -> None:
    """Put back what was set aside."""
    for (module, name), buffer in kept.items():
        module._buffers[name] = buffer


@contextmanager
def leaving_statistics() -> Iterator[None]:
    """Keep every pass of a module inside, which only a checkpoint can make, out of its statistics.

    Example:
        >>> import torch
        >>> layer = nn.BatchNorm1d(2)
        >>> with leaving_statistics():
        ...     outputs = layer(torch.randn(3, 2))
        >>> layer.num_batches_tracked
        tensor(0)
    """
    kept: Kept = {}
    hook = register_module_forward_pre_hook(lambda module, _: set_aside(module, kept))
    try:
        yield
    finally:
        hook.remove()
        put_back(kept)
