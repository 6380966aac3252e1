"""What a fight says: final errors, how far ours is from the best rival, when each met the target.

Errors are compared on a logarithmic scale, in decibels: 10 log10 of a ratio. Over five instances
the range from the least to the greatest value is a 94% interval of the median, whatever the
distribution: 1 - 2 (1/2)^5.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from equilibrate.study.journal import Record
from equilibrate.study.outcome import Spread, cost_to, final_error
from equilibrate.wins.fight import Result
from equilibrate.wins.fighters import BASELINE, OURS

_LEVELS = 5


@dataclass(frozen=True)
class Score:
    """One fighter in the finals of one task; infinite where a run failed or never got there."""

    fighter: str
    rate: float
    error: Spread
    updates: Spread  # until the target
    seconds: Spread  # until the target, at the measured pace
    failed: int


@dataclass(frozen=True)
class Verdict:
    """Ours against the best rival, in decibels, above zero where ours is better.

    `gap` pairs the instances; `apart` says whether the two ranges of errors do not meet.
    """

    rival: str
    gap: Spread
    apart: bool
    first: str  # to the target, by the clock; "" where nobody got there


def scores(result: Result, pace: Mapping[str, float]) -> list[Score]:
    """Return a score for every fighter of a task, in the order given."""
    goal = target(result)
    return [_score(result, fighter, goal, pace[fighter]) for fighter in result.task.fighters]


def target(result: Result) -> float:
    """Return the error that all are timed to: the median final error of tuned AdamW."""
    return statistics.median(map(final_error, result.finals[BASELINE]))


def verdict(result: Result, pace: Mapping[str, float], ours: str = OURS) -> Verdict:
    """Compare one of ours with the rival of the least median error."""
    by_name = {score.fighter: score for score in scores(result, pace)}
    rivals = [score for name, score in by_name.items() if not is_ours(name)]
    best = min(rivals, key=lambda score: score.error.median)
    own_score = by_name[ours]
    pairs = zip(result.finals[best.fighter], result.finals[ours], strict=True)
    gap = Spread.of(decibels(final_error(theirs), final_error(own)) for theirs, own in pairs)
    apart = own_score.error.high < best.error.low or best.error.high < own_score.error.low
    soonest = min(by_name.values(), key=lambda score: score.seconds.median)
    first = soonest.fighter if math.isfinite(soonest.seconds.median) else ""
    return Verdict(best.fighter, gap, apart, first)


def is_ours(fighter: str) -> bool:
    """Tell a form of ESGD from a rival."""
    return fighter.split("-")[0] == OURS


def decibels(above: float, below: float) -> float:
    """Return 10 log10(above / below); infinite where one of them failed.

    Example:
        >>> decibels(0.1, 0.001), decibels(0.1, math.inf)
        (20.0, -inf)
    """
    if math.isinf(above) and math.isinf(below):
        return 0.0
    if math.isinf(above) or below == 0:
        return math.inf
    if math.isinf(below) or above == 0:
        return -math.inf
    return 10 * math.log10(above / below)


def costs(
    results: Sequence[Result], paces: Sequence[Mapping[str, float]]
) -> dict[str, list[float]]:
    """Return every fighter's seconds on each triple of task, instance and level of error.

    Only fighters that fought on all the tasks can be ranked against each other.
    """
    common = [f for f in results[0].task.fighters if all(f in r.task.fighters for r in results)]
    return {
        fighter: [
            cost_to(record, level) * pace[fighter]
            for result, pace in zip(results, paces, strict=True)
            for level in levels(result)
            for record in result.finals[fighter]
        ]
        for fighter in common
    }


def levels(result: Result) -> list[float]:
    """Return errors from the start to the best median, evenly spaced on a logarithmic scale."""
    every = [record for records in result.finals.values() for record in records]
    start = statistics.median(_start(record) for record in every)
    medians = [statistics.median(map(final_error, rows)) for rows in result.finals.values()]
    end = min(medians)
    return [start * (end / start) ** (k / _LEVELS) for k in range(1, _LEVELS + 1)]


def _start(record: Record) -> float:
    return float(record["curve"]["error"][0])


def _score(result: Result, fighter: str, goal: float, pace: float) -> Score:
    records = result.finals[fighter]
    updates = [cost_to(record, goal) for record in records]
    return Score(
        fighter=fighter,
        rate=result.best[fighter],
        error=Spread.of(map(final_error, records)),
        updates=Spread.of(updates),
        seconds=Spread.of(count * pace for count in updates),
        failed=sum(record["status"] != "finished" for record in records),
    )
