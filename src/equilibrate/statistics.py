"""Running statistics (BatchNorm) under the extra passes of `step(closure)`."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from equilibrate.optim.moving import CurvatureOptimizer

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@contextmanager
def frozen_statistics(model: nn.Module, optimizer: CurvatureOptimizer) -> Iterator[None]:
    """Keep running statistics as the ordinary pass left them, while the optimizer measures.

    `step(closure)` runs the closure at displaced points on probing steps; BatchNorm would average
    those passes in. Put the forward pass of the closure inside this context. On ordinary passes it
    does nothing.

    Example:
        >>> import torch
        >>> from equilibrate import ESGD
        >>> model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        >>> optimizer = ESGD(model.parameters())
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     with frozen_statistics(model, optimizer):
        ...         loss = model(torch.eye(3)).pow(4).mean()
        ...     loss.backward()
        ...     return loss
        >>> loss = optimizer.step(closure)
        >>> model[1].num_batches_tracked
        tensor(1)
    """
    kept = [
        (module, name, buffer)
        for module in model.modules()
        for name in _STATISTICS
        if optimizer.measuring and (buffer := module._buffers.get(name)) is not None
    ]
    # Copies take part in the displaced passes. The buffers themselves may not be written and put
    # back in place: the graph of the pass holds on to them until its backward.
    for module, name, buffer in kept:
        module._buffers[name] = buffer.clone()
    try:
        yield
    finally:
        for module, name, buffer in kept:
            module._buffers[name] = buffer
