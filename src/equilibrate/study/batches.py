"""The order in which a run sees its data: a function of (seed, epoch), so nothing is kept.

The order is drawn on the CPU, the same for every device, and moved to where the data is. Runs in a
stack that share a seed share the order.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from equilibrate.study.naming import digest


def epoch_order(cases: int, *, seed: int, epoch: int) -> Tensor:
    """Return the shuffled case numbers of one epoch.

    Example:
        >>> sorted(epoch_order(4, seed=0, epoch=3).tolist())
        [0, 1, 2, 3]
    """
    name = int(digest(["order", seed, epoch])[:15], 16)
    return torch.randperm(cases, generator=torch.Generator("cpu").manual_seed(name))


def pieces(data: tuple[Tensor, Tensor], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the data in order, `size` cases at a time, the last piece smaller."""
    yield from zip(*(torch.split(tensor, size) for tensor in data), strict=True)


class Batches:
    """The batches of several runs, one after the other: `next()` is theirs at each update.

    The position within the epoch lives on the device, so that `next` can be captured in a CUDA
    graph; `begin` lays out an epoch before its first batch.
    """

    def __init__(self, data: tuple[Tensor, Tensor], batch_size: int, seeds: Sequence[int]) -> None:
        self.inputs, self.targets = data
        self.batch_size = batch_size
        self.updates_per_epoch = len(self.inputs) // batch_size
        self._distinct = sorted(set(seeds))
        device = self.inputs.device
        rows = [self._distinct.index(seed) for seed in seeds]
        self._rows = torch.tensor(rows, device=device)
        shape = (len(self._distinct), self.updates_per_epoch, batch_size)
        self._order = torch.zeros(shape, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)  # of the next batch

    def begin(self, update: int) -> None:
        """Lay out the epoch that holds this update, and go to its place in it."""
        epoch, position = divmod(update, self.updates_per_epoch)
        used = self.updates_per_epoch * self.batch_size
        orders = [
            epoch_order(len(self.inputs), seed=seed, epoch=epoch)[:used] for seed in self._distinct
        ]
        order = torch.stack(orders).view(self._order.shape)
        if self.inputs.device.type == "cuda":
            order = order.pin_memory()  # copied while earlier updates still run
        self._order.copy_(order, non_blocking=True)
        self.position.fill_(position)

    def next(self) -> tuple[Tensor, Tensor]:
        """Return every run's inputs and targets, (runs, batch_size, ...)."""
        chosen = self._order.index_select(1, self.position).squeeze(1)[self._rows]
        self.position.add_(1)
        inputs = self.inputs[chosen]
        return inputs, inputs if self.targets is self.inputs else self.targets[chosen]
