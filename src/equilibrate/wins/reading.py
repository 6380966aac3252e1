"""What a fight says: final errors, how far ours is from the best rival, when each met the target.

Errors are compared on a logarithmic scale, in decibels: 10 log10 of a ratio. Every median comes
with its interval (`interval`).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from equilibrate.study.journal import Record
from equilibrate.study.outcome import Spread, cost_to, final_error
from equilibrate.wins.fight import Result
from equilibrate.wins.fighters import BASELINE, OURS, is_ours
from equilibrate.wins.interval import interval
from equilibrate.wins.timing import Pace

_LEVELS = 5
TIE = 0.1  # decibels that nobody can tell apart


def stuck(result: Result) -> dict[str, int]:
    """Return how many tuned finals of a fighter ended within 1e-6 of where they began, if any did.

    Whoever fights so was never in it: a sign of a rival that is run wrongly, not of a hard task.
    """
    found = {
        fighter: sum(abs(final_error(r) / r["curve"]["error"][0] - 1) < 1e-6 for r in finals)
        for fighter, finals in result.finals.items()
    }
    return {fighter: count for fighter, count in found.items() if count}


@dataclass(frozen=True)
class Score:
    """One fighter in the finals of one task; infinite where a run failed or never got there."""

    fighter: str
    rate: float
    error: Spread
    early: Spread  # the error after a tenth of the run
    updates: Spread  # until the target
    seconds: Spread  # until the target, at the measured pace
    failed: int
    behind: int  # finals that ended worse than the best rival's on the same instance


@dataclass(frozen=True)
class Verdict:
    """Ours against the best rival, the one of the least median error.

    Gaps are in decibels, instance by instance, above zero where ours is better. `apart` says
    whether the intervals of the two median errors do not meet, `sooner` whether ours meets the
    target before every rival by the clock, and `sooner_apart` whether those intervals do not meet.
    """

    rival: str
    gap: Spread
    gap_to_baseline: Spread
    apart: bool
    soonest: str  # of the rivals, by the clock; "" where none got there
    sooner: bool
    sooner_apart: bool


def scores(result: Result, pace: Mapping[str, Pace]) -> list[Score]:
    """Return a score for every fighter of a task, in the order given."""
    return [_score(result, fighter, pace[fighter]) for fighter in result.task.fighters]


def target(result: Result) -> float:
    """Return the error that all are timed to: the median final error of tuned AdamW."""
    return _median(result, BASELINE)


def best_rival(result: Result) -> str:
    """Return the rival of the least median error."""
    return min(rivals(result), key=lambda fighter: _median(result, fighter))


def rivals(result: Result) -> list[str]:
    """Return all but ours."""
    return [fighter for fighter in result.task.fighters if not is_ours(fighter)]


def verdict(result: Result, pace: Mapping[str, Pace], ours: str = OURS) -> Verdict:
    """Compare one of ours with the rivals."""
    by_name = {score.fighter: score for score in scores(result, pace)}
    rival, own = best_rival(result), by_name[ours]
    quickest = min((by_name[name] for name in rivals(result)), key=lambda s: s.seconds.median)
    never = math.isinf(quickest.seconds.median)
    return Verdict(
        rival=rival,
        gap=_gap(result, rival, ours),
        gap_to_baseline=_gap(result, BASELINE, ours),
        apart=_apart(own.error, by_name[rival].error),
        soonest="" if never else quickest.fighter,
        sooner=own.seconds.median < quickest.seconds.median,
        sooner_apart=_apart(own.seconds, quickest.seconds),
    )


def behind(result: Result, records: Sequence[Record]) -> int:
    """Count the finals that ended worse than the best rival's on the same instance."""
    pairs = zip(result.finals[best_rival(result)], records, strict=True)
    gaps = (decibels(final_error(theirs), final_error(own)) for theirs, own in pairs)
    return sum(gap < -TIE for gap in gaps)


def _median(result: Result, fighter: str) -> float:
    return statistics.median(map(final_error, result.finals[fighter]))


def _gap(result: Result, rival: str, ours: str) -> Spread:
    pairs = zip(result.finals[rival], result.finals[ours], strict=True)
    return interval(decibels(final_error(theirs), final_error(own)) for theirs, own in pairs)


def _apart(one: Spread, other: Spread) -> bool:
    return one.high < other.low or other.high < one.low


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


def costs(results: Sequence[Result], paces: Sequence[Mapping[str, Pace]]) -> dict[str, list[float]]:
    """Return every fighter's seconds on each triple of task, instance and level of error.

    Only fighters that fought on all the tasks can be ranked against each other.
    """
    common = [f for f in results[0].task.fighters if all(f in r.task.fighters for r in results)]
    return {
        fighter: [
            pace[fighter].until(cost_to(record, level))
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


def early_error(record: Record, planned: int) -> float:
    """Return the error last measured in the first tenth of the planned updates.

    Infinite where the run failed before that.

    Example:
        >>> curve = {"updates": [0, 9, 11], "error": [4.0, 3.0, 2.0]}
        >>> early_error({"curve": curve, "status": "diverged"}, planned=100)
        3.0
        >>> early_error({"curve": curve, "status": "diverged"}, planned=1000)
        inf
    """
    updates, errors = record["curve"]["updates"], record["curve"]["error"]
    if record["status"] != "finished" and 10 * updates[-1] < planned:
        return math.inf
    points = zip(updates, errors, strict=True)
    return [float(error) for done, error in points if 10 * done <= planned][-1]


def _start(record: Record) -> float:
    return float(record["curve"]["error"][0])


def _score(result: Result, fighter: str, pace: Pace) -> Score:
    records, goal = result.finals[fighter], target(result)
    updates = [cost_to(record, goal) for record in records]
    planned = result.task.epochs * result.task.updates_per_epoch
    return Score(
        fighter=fighter,
        rate=result.best[fighter],
        error=interval(map(final_error, records)),
        early=interval(early_error(record, planned) for record in records),
        updates=interval(updates),
        seconds=interval(map(pace.until, updates)),
        failed=sum(record["status"] != "finished" for record in records),
        behind=behind(result, records),
    )
