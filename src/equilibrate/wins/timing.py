"""How long one update of each fighter takes, measured side by side in one process.

Trials of a fight train beside others, so that their own seconds mean little. Here the fighters take
turns on an otherwise idle machine, round after round; the median round counts.
"""

import statistics
import time
from collections.abc import Mapping

import torch

from equilibrate.paper.records import Data
from equilibrate.study.alone import Alone
from equilibrate.wins.arena import Arena, Job, trainer
from equilibrate.wins.fight import Result

_ROUNDS = 7
_UPDATES = 40  # two probes of an ESGD with one in twenty


def seconds_per_update(result: Result, schedule: str, arena: Arena) -> dict[str, float]:
    """Return the seconds of one update of every fighter at its best rate, recorded once."""
    best = {fighter: result.best[fighter] for fighter in result.task.fighters}
    settings = {"task": result.task.name, "best": best, "schedule": schedule,
                "rounds": _ROUNDS, "updates": _UPDATES}  # fmt: skip
    record, _ = arena.store.get("timing", settings, lambda: _measure(result, best, schedule, arena))
    found: dict[str, float] = record["data"]["seconds_per_update"]
    return found


def _measure(result: Result, best: Mapping[str, float], schedule: str, arena: Arena) -> Data:
    trainers = {}
    for fighter, rate in best.items():
        job = Job(result.task, fighter, _instance(result), (rate,), schedule)
        trainers[fighter] = trainer(job, rate, arena.device)
        trainers[fighter].advance(2)  # with the warm-up, which is no measure of the rest
    rounds = [{f: _timed(t) for f, t in trainers.items()} for _ in range(_ROUNDS)]
    return {"seconds_per_update": {f: statistics.median(r[f] for r in rounds) for f in trainers}}


def _instance(result: Result) -> int:
    return int(next(iter(result.finals.values()))[0]["instance"])


def _timed(one: Alone) -> float:
    started = time.perf_counter()
    one.advance(_UPDATES)
    if one.device.type == "cuda":
        torch.cuda.synchronize(one.device)
    return (time.perf_counter() - started) / _UPDATES
