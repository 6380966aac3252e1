"""The fight: tune every fighter alike, extend all grids or none, then the finals.

Ours train in the finals once more with the learning rate as shipped, which nobody searched.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from equilibrate.study.journal import Record
from equilibrate.study.outcome import final_error
from equilibrate.study.space import LogUniform
from equilibrate.wins.arena import Arena, Job
from equilibrate.wins.fighters import FIGHTERS, SHIPPED_RATE, is_ours
from equilibrate.wins.grid import MOST_EXTENSIONS, PER_DECADE, at_an_end, rates
from equilibrate.wins.tasks import Task

_TIE = 0.1 * math.log(10) / 10  # a tenth of a decibel


@dataclass(frozen=True)
class Plan:
    """How a fight goes.

    Args:
        tuning: the instances that learning rates are chosen on.
        finals: the instances that count.
        per_decade: learning rates in a decade of the grid.
        extensions: of the grids, at most.
        ramp: share of a run in which the learning rate rises before the cosine.
        choose: how learning rates are chosen: by the least geometric "mean" of the errors over the
            instances, or by the least error on the "worst" of them.
    """

    tuning: tuple[int, ...] = (0, 1)
    finals: tuple[int, ...] = (2, 3, 4, 5, 6)
    per_decade: int = PER_DECADE
    extensions: int = MOST_EXTENSIONS
    ramp: float = 0.0
    choose: str = "mean"

    def __post_init__(self) -> None:
        if set(self.tuning) & set(self.finals):
            raise ValueError("an instance of the finals must not be used in tuning")

    def schedule(self, task: Task) -> str:
        """Return the learning-rate schedule of every fighter on a task."""
        updates = round(self.ramp * task.epochs * task.updates_per_epoch)
        return f"ramp:{updates}+cosine" if updates else "cosine"


@dataclass(frozen=True)
class Result:
    """What came out on one task; everything by the fighter's name."""

    task: Task
    grids: Mapping[str, list[float]]
    tuning: Mapping[str, list[Record]]
    best: Mapping[str, float]  # learning rate
    finals: Mapping[str, list[Record]]  # one an instance
    shipped: Mapping[str, list[Record]]  # finals of ours with the learning rate as shipped

    @property
    def at_an_end(self) -> list[str]:
        """The fighters whose best rate lies at an end of the widest grid all the same."""
        return at_an_end(self.best, self.grids)


def fight(tasks: Sequence[Task], plan: Plan, arena: Arena) -> list[Result]:
    """Fight over some tasks; what is recorded is not trained again."""
    extensions = dict.fromkeys((task.name for task in tasks), 0)
    unsettled = list(tasks)
    for number in range(plan.extensions + 1):
        jobs = [job for task in unsettled for job in _tuning(task, plan, number)]
        arena.train(jobs, f"tuning, {'extended grids' if number else 'all grids'}")
        extensions.update({task.name: number for task in unsettled})
        unsettled = [task for task in unsettled if _ends(task, plan, number, arena)]
    chosen = {task.name: _best(task, plan, extensions[task.name], arena) for task in tasks}
    arena.train([job for task in tasks for job in _finals(task, plan, chosen[task.name])], "finals")
    arena.train([job for task in tasks for job in _shipped(task, plan)], "finals, as shipped")
    return [_result(task, plan, extensions[task.name], arena) for task in tasks]


def tuned(records: Sequence[Record]) -> float:
    """Return the learning rate with the least error, the geometric mean over the instances.

    Of rates within a tenth of a decibel of the least error the lowest is taken: what cannot be told
    apart is decided by caution. A rate that failed on one instance has an infinite error; where all
    failed, the least rate is taken, so that the finals show it.
    """
    errors: dict[float, list[float]] = {}
    for record in records:
        errors.setdefault(record["settings"]["lr"], []).append(final_error(record))
    means = {rate: statistics.mean(map(_log, errors[rate])) for rate in sorted(errors)}
    least = min(means.values())
    return next(rate for rate, mean in means.items() if mean == least or mean - least < _TIE)


def least_worst(records: Sequence[Record]) -> tuple[float, float]:
    """Return the learning rate whose worst instance of a tuning is the best, and that error.

    The geometric mean cares little for one instance that went wrong beside others that were solved
    to the last digit; this cares for nothing else.
    """
    worst: dict[float, float] = {}
    for record in records:
        rate = record["settings"]["lr"]
        worst[rate] = max(worst.get(rate, 0.0), final_error(record))
    rate = min(sorted(worst), key=worst.__getitem__)
    return rate, worst[rate]


CHOICES: dict[str, Callable[[Sequence[Record]], float]] = {
    "mean": tuned,
    "worst": lambda records: least_worst(records)[0],
}
"""How a learning rate may be chosen, by name."""


def _log(error: float) -> float:
    return math.log(error) if 0 < error < math.inf else (error and math.inf) or -math.inf


def _grid(fighter: str, plan: Plan, extensions: int) -> list[float]:
    where = FIGHTERS[fighter]().space["lr"]
    assert isinstance(where, LogUniform)
    return rates(where, extensions, plan.per_decade)


def _tuning(task: Task, plan: Plan, extensions: int) -> list[Job]:
    return [
        Job(task, fighter, instance, tuple(_grid(fighter, plan, extensions)), plan.schedule(task))
        for fighter in task.fighters
        for instance in plan.tuning
    ]


def _finals(task: Task, plan: Plan, best: Mapping[str, float]) -> list[Job]:
    schedule = plan.schedule(task)
    return [Job(task, f, i, (best[f],), schedule) for f in best for i in plan.finals]


def _shipped(task: Task, plan: Plan) -> list[Job]:
    return _finals(task, plan, dict.fromkeys(filter(is_ours, task.fighters), SHIPPED_RATE))


def _by_fighter(jobs: Sequence[Job], arena: Arena) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for job in jobs:
        found.setdefault(job.fighter, []).extend(arena.find([job]))
    return found


def _best(task: Task, plan: Plan, extensions: int, arena: Arena) -> dict[str, float]:
    records = _by_fighter(_tuning(task, plan, extensions), arena)
    return {fighter: CHOICES[plan.choose](rows) for fighter, rows in records.items()}


def _ends(task: Task, plan: Plan, extensions: int, arena: Arena) -> list[str]:
    grids = {fighter: _grid(fighter, plan, extensions) for fighter in task.fighters}
    return at_an_end(_best(task, plan, extensions, arena), grids)


def _result(task: Task, plan: Plan, extensions: int, arena: Arena) -> Result:
    best = _best(task, plan, extensions, arena)
    return Result(
        task=task,
        grids={fighter: _grid(fighter, plan, extensions) for fighter in task.fighters},
        tuning=_by_fighter(_tuning(task, plan, extensions), arena),
        best=best,
        finals=_by_fighter(_finals(task, plan, best), arena),
        shipped=_by_fighter(_shipped(task, plan), arena),
    )
