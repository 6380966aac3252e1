"""How long an update takes, by the clock on the wall: trainers side by side, in turn."""

import time
from collections.abc import Mapping
from typing import TypeVar

from equilibrate.study.course import Trainer

Name = TypeVar("Name")


def in_turn(trainers: Mapping[Name, Trainer], updates: int, rounds: int) -> dict[Name, list[float]]:
    """Return the seconds of an update in every round; each takes its turn, so drift hits all."""
    found: dict[Name, list[float]] = {name: [] for name in trainers}
    for _ in range(rounds):
        for name, trainer in trainers.items():
            found[name].append(seconds_per_update(trainer, updates))
    return found


def seconds_per_update(trainer: Trainer, updates: int) -> float:
    """Train for a number of updates; return the mean time of one, with the device's own work."""
    started = time.perf_counter()
    trainer.advance(updates)
    return (time.perf_counter() - started) / updates
