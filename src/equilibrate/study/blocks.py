"""Parts of a stack: neighbours that one optimizer moves.

Trials of different methods can share a stack, and with it the matrix products of the passes: the
more trials, the better a GPU is used. Neighbours with the same optimizer and structure
(`stacked_rules`) form a block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from equilibrate.study.methods import Method
from equilibrate.study.scheduling import Scheduling
from equilibrate.study.stacked_curvature import KINDS, StackedCurvature
from equilibrate.study.stacked_optimizer import StackedOptimizer
from equilibrate.study.stacked_row_column import StackedRowColumn
from equilibrate.study.stacked_rules import structure
from equilibrate.study.timetable import Timetable
from equilibrate.study.trial import Trial


@dataclass(frozen=True)
class Block:
    """Rows `start` to `stop` of a stack of `total`, their optimizer and their schedules.

    `updates` are those of its longest trial.
    """

    start: int
    stop: int
    total: int
    optimizer: StackedOptimizer
    schedule: Scheduling
    timetable: Timetable
    updates: int

    def of(self, tensor: Tensor) -> Tensor:
        """Return this block's rows: the tensor itself where they are all."""
        return rows(tensor, self.start, self.stop)

    def due(self, update: int) -> int | None:
        """Return the updates since the last probe where one is due, 0 at the start, else None."""
        if not self.optimizer.probes_at(update):
            return None
        return int(self.optimizer.switches["probe_every"]) if update else 0

    @property
    def probes(self) -> int:
        """The number of probes along its longest trial."""
        return self.updates // int(self.optimizer.switches["probe_every"])


def rows(tensor: Tensor, start: int, stop: int) -> Tensor:
    """Return rows of a tensor: the tensor itself where they are all."""
    return tensor if stop - start == len(tensor) else tensor[start:stop]


def _stacked(
    optimizer: type[Optimizer], settings: Sequence[Mapping[str, Any]], parameters: Sequence[Tensor]
) -> StackedOptimizer:
    """Return the stacked form of an optimizer for trials of one structure."""
    if optimizer not in KINDS:
        return StackedOptimizer(optimizer, settings, parameters)
    if settings[0].get("scaling") == "row-column":
        return StackedRowColumn(optimizer, settings, parameters)
    return StackedCurvature(optimizer, settings, parameters)


def make_blocks(
    methods: Mapping[str, Method],
    trials: Sequence[Trial],
    parameters: Sequence[Tensor],
    updates_per_epoch: int,
) -> list[Block]:
    """Split a stack where optimizer or structure changes from one trial to the next."""

    def kind(trial: Trial) -> tuple[type[Optimizer], Any]:
        optimizer = methods[trial.method].optimizer
        return optimizer, structure(optimizer, trial.settings)

    blocks, start = [], 0
    for (optimizer, _), members in groupby(trials, kind):
        mine = list(members)
        stop = start + len(mine)
        whole = len(mine) == len(trials)
        own = [p if whole else p.detach()[start:stop] for p in parameters]
        made = _stacked(optimizer, [trial.settings for trial in mine], own)
        totals = [trial.epochs * updates_per_epoch for trial in mine]
        schedule = Scheduling(made.settings, totals)
        timetable = Timetable(schedule, made, updates_per_epoch)
        blocks.append(Block(start, stop, len(trials), made, schedule, timetable, max(totals)))
        start = stop
    return blocks
