"""How long one update of each fighter takes, measured side by side in one process.

Trials of a fight train beside others, so that their own seconds mean little. Here the fighters take
turns in one process, round after round; the median round counts. The first update of a run is
measured by itself, as a multiple of an ordinary one: ESGD draws its warm-up there, twenty products
with the Hessian, and that time belongs to the time until a target.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from equilibrate.paper.records import Data
from equilibrate.study.alone import Alone
from equilibrate.study.timing import in_turn, seconds_per_update
from equilibrate.wins.arena import Arena, Job, trainer
from equilibrate.wins.fight import Result

_ROUNDS = 7
_UPDATES = 40  # two probes of an ESGD with one in twenty
_AFTER_FIRST = 20  # one probe


@dataclass(frozen=True)
class Pace:
    """How fast a fighter trains.

    Args:
        seconds: of an ordinary update, probes among them.
        first: the first update of a run, in ordinary ones.
    """

    seconds: float
    first: float = 1.0

    def until(self, updates: float) -> float:
        """Return the seconds of a number of updates from the start of a run.

        Example:
            >>> Pace(0.5, first=3.0).until(4), Pace(0.5, first=3.0).until(0)
            (3.0, 0.0)
        """
        return self.seconds * (updates + self.first - 1) if updates else 0.0


def paces(result: Result, schedule: str, arena: Arena) -> dict[str, Pace]:
    """Return the pace of every fighter at its best rate, recorded once."""
    best = {fighter: result.best[fighter] for fighter in result.task.fighters}
    settings = {"task": result.task.name, "best": best, "schedule": schedule, "rounds": _ROUNDS}
    if result.task.growth_limit is not None:
        settings["growth_limit"] = result.task.growth_limit
    timing, _ = arena.store.get(
        "timing",
        {**settings, "updates": _UPDATES},
        lambda: _measure(result, best, schedule, arena),
    )
    first, _ = arena.store.get(
        "first",
        {**settings, "updates": _AFTER_FIRST},
        lambda: _measure_first(result, best, schedule, arena),
    )
    seconds, firsts = timing["data"]["seconds_per_update"], first["data"]["ordinary_updates"]
    return {fighter: Pace(seconds[fighter], firsts[fighter]) for fighter in best}


def _measure(result: Result, best: Mapping[str, float], schedule: str, arena: Arena) -> Data:
    trainers = _trainers(result, best, schedule, arena)
    for one in trainers.values():
        one.advance(2)  # with the warm-up, which is no measure of the rest
    times = in_turn(trainers, _UPDATES, _ROUNDS)
    return {"seconds_per_update": {f: statistics.median(own) for f, own in times.items()}}


def _measure_first(result: Result, best: Mapping[str, float], schedule: str, arena: Arena) -> Data:
    def ratio(one: Alone) -> float:
        return seconds_per_update(one, 1) / seconds_per_update(one, _AFTER_FIRST)

    rounds = [
        {f: ratio(t) for f, t in _trainers(result, best, schedule, arena).items()}
        for _ in range(_ROUNDS)
    ]
    return {"ordinary_updates": {f: statistics.median(r[f] for r in rounds) for f in best}}


def _trainers(
    result: Result, best: Mapping[str, float], schedule: str, arena: Arena
) -> dict[str, Alone]:
    def started(fighter: str, rate: float) -> Alone:
        job = Job(result.task, fighter, _instance(result), (rate,), schedule)
        return trainer(job, rate, arena.device)

    return {fighter: started(fighter, rate) for fighter, rate in best.items()}


def _instance(result: Result) -> int:
    return int(next(iter(result.finals.values()))[0]["instance"])
