"""Interleaved timing: every contestant runs once in every round, so that drift hits all alike."""

import time
from collections.abc import Callable
from statistics import median


def interleaved(contestants: dict[str, Callable[[], object]], rounds: int = 15) -> dict[str, float]:
    """Return median seconds over interleaved rounds, after one that is not measured."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: median(seconds) for name, seconds in times.items()}
