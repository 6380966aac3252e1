"""Numbers that change at every update, laid out on the device an epoch at a time.

A number set from the host before every update costs dozens of small launches, more than a small
network's own. A captured graph reads these where it stands in the epoch instead.
"""

import torch
from torch import Tensor

from equilibrate.study.scheduling import Scheduling
from equilibrate.study.stacked_optimizer import StackedOptimizer


class Timetable:
    """What a schedule gives an optimizer at each update of an epoch.

    Args:
        schedule: of all its trials.
        optimizer: whose numbers follow.
        updates: of an epoch.
    """

    def __init__(self, schedule: Scheduling, optimizer: StackedOptimizer, updates: int) -> None:
        self._schedule, self._optimizer, self._updates = schedule, optimizer, updates
        self.names = schedule.restless
        self._tables = {
            name: optimizer.numbers[name].new_zeros(updates, len(optimizer.settings))
            for name in self.names
        }
        optimizer.follows = bool(self.names)

    def begin(self, update: int) -> None:
        """Lay out the epoch that holds this update."""
        first = update - update % self._updates
        for name, table in self._tables.items():
            rows = [self._schedule.at(name, first + k) for k in range(self._updates)]
            values = torch.tensor(rows, dtype=table.dtype)
            if table.is_cuda:
                values = values.pin_memory()  # copied while earlier updates still run
            table.copy_(values, non_blocking=True)

    def follow(self, position: Tensor) -> None:
        """Take the numbers of the update at a position within the epoch, a tensor of one."""
        for name, table in self._tables.items():
            self._optimizer.numbers[name].copy_(table.index_select(0, position).squeeze(0))
