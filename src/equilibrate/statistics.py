"""Running statistics (BatchNorm) under the extra passes of `step(closure)`."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from equilibrate.curvature.recomputing import Kept, put_back, set_aside
from equilibrate.optim.moving import CurvatureOptimizer


@contextmanager
def frozen_statistics(model: nn.Module, optimizer: CurvatureOptimizer) -> Iterator[None]:
    """Keep running statistics as the ordinary pass left them, while the optimizer measures.

    `step(closure)` runs the closure at displaced points on probing steps; BatchNorm would average
    those passes in. Put the forward pass of the closure inside this context; with activation
    checkpointing, which runs it again, the backward pass too. On ordinary passes it does nothing.

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
    kept: Kept = {}
    for module in model.modules() if optimizer.measuring else ():
        set_aside(module, kept)
    try:
        yield
    finally:
        put_back(kept)
