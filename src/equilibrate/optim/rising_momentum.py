"""A momentum that rises while a network trains, as Sutskever et al. 2013 let it."""

from numbers import Integral, Real
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

EVERY = 250


def rising_momentum(update: int, most: float, every: int = EVERY) -> float:
    """Return min(1 - 2^(-1 - log2(floor(t / every) + 1)), most) at update t, from 0 on.

    Sutskever et al. 2013, equation 5, with every = 250: 0.5, 0.75, 0.83, ... up to `most`.

    Example:
        >>> [rising_momentum(t, 0.99) for t in (0, 249, 250, 750, 10**6)]
        [0.5, 0.5, 0.75, 0.875, 0.99]
    """
    return min(1 - 0.5 / (update // every + 1), most)


class RisingMomentum(LRScheduler):
    """Lets the momentum of every group rise; learning rates stay what they are.

    It is called like any scheduler of torch, once after each `optimizer.step()`, alone or beside
    one of the learning rate. It starts at 0.5 whatever momentum the optimizer was given, and has
    0.9 after 1,000 updates, 0.99 after 12,250. A constant 0.99 killed or slowed the auto-encoders
    it was tried on, one that rises to it did not (docs/momentum.md). Sutskever et al. 2013 also end
    with 0.9 for the last 1,000 updates; where that is wanted, set `group["momentum"]` there. In a
    captured CUDA graph the momentum is a part of the graph, so that it needs a new capture to rise.

    Args:
        optimizer: whose groups have a momentum: `ESGD`, `JacobiSGD`, `torch.optim.SGD` and others.
        most: the momentum that is reached in the end, after about every / (2 (1 - most)) updates.
        every: updates between two rises.
        last_epoch: as in torch's schedulers: the updates that a resumed run has made, less one.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.1, momentum=0.9)
        >>> scheduler = RisingMomentum(optimizer, most=0.99, every=1)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> optimizer.param_groups[0]["momentum"], scheduler.get_last_lr()
        (0.875, [0.1])
    """

    def __init__(
        self, optimizer: Optimizer, most: float = 0.99, *, every: int = EVERY, last_epoch: int = -1
    ) -> None:
        if not isinstance(most, Real) or not 0 < most < 1:
            raise ValueError(f"Invalid most: {most!r}. Give a momentum below 1, such as 0.99.")
        if not isinstance(every, Integral) or isinstance(every, bool) or every < 1:
            raise ValueError(f"Invalid every: {every!r}. Give a whole number of updates.")
        if not all("momentum" in group for group in optimizer.param_groups):
            raise ValueError(
                f"{type(optimizer).__name__} has no momentum to schedule: RisingMomentum takes "
                f"optimizers with a momentum argument, such as ESGD and torch.optim.SGD."
            )
        if not all(group["momentum"] for group in optimizer.param_groups):
            raise ValueError(
                f"{type(optimizer).__name__} has a group without momentum, which cannot rise. Give "
                f"momentum=0.9, say, to the optimizer."
            )
        self.most: float = most
        self.every: int = every
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Set the momentum of every group; return the learning rates as they are."""
        momentum = rising_momentum(self.last_epoch, self.most, self.every)
        for group in self.optimizer.param_groups:
            group["momentum"] = momentum
        return [group["lr"] for group in self.optimizer.param_groups]
