"""What became of one method: its winner, the winner's seeds, when a curve reaches a target.

Everything here is read from records. Nothing is interpolated: an error counts from the point at
which it was measured. The curve of a trial that diverged may be empty.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from equilibrate.study.naming import canonical
from equilibrate.study.space import Choice, LogUniform, Space

Record = Mapping[str, Any]
Axis = Literal["updates", "seconds"]

SEARCH_SEED = 0
"""The seed at which settings are searched; the others only repeat the winners."""

EDGE = 0.1
"""The share of a range, at either end, that counts as its edge."""


_ONE_BY_ONE = "--at-once 1, with another --out, trains one trial at a time and brings times back"


@dataclass(frozen=True)
class Spread:
    """Median and extremes over seeds; infinite where a seed diverged or never got there.

    Example:
        >>> Spread.of([3.0, 1.0, 2.0])
        Spread(median=2.0, low=1.0, high=3.0, seeds=3, finite=3)
    """

    median: float
    low: float
    high: float
    seeds: int
    finite: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """The spread of at least one value."""
        values = list(values)
        finite = sum(map(math.isfinite, values))
        return cls(statistics.median(values), min(values), max(values), len(values), finite)


def ending(record: Record) -> str:
    """How a trial ended: finished, cut or diverged.

    It diverged where its errors left the finite numbers, and where the last one is above the first:
    a run on its way to infinity when its epochs were over.

    Example:
        >>> ended = {"status": "finished", "curve": {"error": [3.27, 1.7e15]}}
        >>> ending({**ended, "final_error": 1.7e15}), ending({**ended, "final_error": 3.2})
        ('diverged', 'finished')
    """
    status = str(record["status"])
    lost = status != "diverged" and record["final_error"] > record["curve"]["error"][0]
    return "diverged" if lost else status


def judged(records: Iterable[Record]) -> list[Record]:
    """The records with the status that a table and a picture give them: how they ended."""
    return [r if ending(r) == r["status"] else {**r, "status": ending(r)} for r in records]


def final_error(record: Record) -> float:
    """The error at the end of the budget: infinite unless the trial got there."""
    return float(record["final_error"]) if record["status"] == "finished" else math.inf


def winner(records: Iterable[Record]) -> Record | None:
    """The trial of the search that ended lowest; None where no trial finished.

    Example:
        >>> trials = [{"seed": 0, "status": "finished", "final_error": e} for e in (2.0, 1.0)]
        >>> winner([*trials, {"seed": 0, "status": "diverged", "final_error": 0.5}])["final_error"]
        1.0
    """
    searched = [r for r in records if r["seed"] == SEARCH_SEED and r["status"] == "finished"]
    return min(searched, key=final_error, default=None)


def repeats(best: Record, records: Iterable[Record]) -> list[Record]:
    """The winner at every seed it was trained with, in the order of the seeds."""
    settings = canonical(best["settings"])
    same = {r["seed"]: r for r in records if canonical(r["settings"]) == settings}
    return [same[seed] for seed in sorted(same)]


def cost_to(record: Record, target: float, axis: Axis = "updates") -> float:
    """Updates or seconds until an error of at most `target` was measured; infinite if never.

    Example:
        >>> curve = {"updates": [0, 10, 20], "error": [5.0, 2.0, 1.0], "seconds": [0, 3, 6]}
        >>> cost_to({"curve": curve}, 2.0), cost_to({"curve": curve}, 0.5)
        (10.0, inf)
    """
    curve = record["curve"]
    costs = zip(curve[axis], curve["error"], strict=True)
    return next((float(cost) for cost, error in costs if error <= target), math.inf)


def error_at(record: Record, seconds: float) -> float:
    """The error last measured within `seconds` of training; infinite once the trial diverged.

    Example:
        >>> curve = {"updates": [0, 10, 20], "error": [5.0, 2.0, 1.0], "seconds": [0, 3, 6]}
        >>> error_at({"curve": curve}, 4.0)
        2.0
    """
    curve = record["curve"]
    if record.get("status") == "diverged" and seconds > max(curve["seconds"], default=-math.inf):
        return math.inf
    points = zip(curve["seconds"], curve["error"], strict=True)
    return [float(error) for spent, error in points if spent <= seconds][-1]


def at_edge(settings: Mapping[str, Any], space: Space, *, share: float = EDGE) -> list[str]:
    """Say which searched settings lie at an edge of their range: the optimum may be outside.

    The edge of a range is its outer tenth, of a list of three or more numbers its least and its
    greatest. Two values have no inside, so they have no edge either. With a larger `share` those
    that lie near an edge are named too.

    Example:
        >>> at_edge({"lr": 0.098}, {"lr": LogUniform(0.01, 0.1)})
        ['lr 0.098 is at the upper edge of 0.01 to 0.1']
        >>> at_edge({"lr": 0.075}, {"lr": LogUniform(0.01, 0.1)})
        []
        >>> at_edge({"lr": 0.075}, {"lr": LogUniform(0.01, 0.1)}, share=1 / 6)
        ['lr 0.075 is near the upper edge of 0.01 to 0.1']
    """
    found = []
    for name, where in space.items():
        end = _end(settings[name], where, share) if name in settings else None
        if end:
            how = "at" if _end(settings[name], where, EDGE) else "near"
            low, high = _bounds(where)
            found.append(
                f"{name} {settings[name]:g} is {how} the {end} edge of {low:.3g} to {high:.3g}"
            )
    return found


def _end(value: Any, where: LogUniform | Choice, share: float) -> str | None:
    if isinstance(where, Choice):
        numbers = len(where.values) > 2 and all(isinstance(v, int | float) for v in where.values)
        ends = dict(zip(_bounds(where), ("lower", "upper"), strict=True)) if numbers else {}
        return ends.get(value) if numbers else None
    if where.decades == 0:
        return None
    place = math.log10(value / where.low) / where.decades
    return "lower" if place <= share else "upper" if place >= 1 - share else None


def _bounds(where: LogUniform | Choice) -> tuple[float, float]:
    if isinstance(where, Choice):
        return min(where.values), max(where.values)
    return where.low, where.high


def comparable(
    winners: Mapping[str, Sequence[Record]],
) -> tuple[dict[str, list[Record]], str]:
    """The records whose seconds may be compared, or none and the reason.

    Seconds depend on the device, the versions, the threads, the precision and on how many trials
    were trained together. One set of these under which every method has a record is taken: that
    with the most records.
    """
    if any(record.get("mixed") for records in winners.values() for record in records):
        return {}, "several methods shared one stack, and with it their time"
    groups: dict[str, dict[str, list[Record]]] = {}
    for method, records in winners.items():
        for record in records:
            group = groups.setdefault(canonical(conditions(record)), {})
            group.setdefault(method, []).append(record)
    whole = [group for group in groups.values() if len(group) == len(winners)]
    if not whole:
        return {}, f"the records differ in {_differences(winners)}" if winners else "no records"
    return max(whole, key=lambda group: sum(map(len, group.values()))), ""


def conditions(record: Record) -> dict[str, Any]:
    """What the seconds of a record depend on besides the method."""
    made = record["provenance"]
    described = {key: made.get(key) for key in ("device", "machine", "threads", "versions")}
    return {**described, "precision": record["precision"], "together": record["together"]}


def _differences(winners: Mapping[str, Sequence[Record]]) -> str:
    seen: dict[str, dict[str, None]] = {}
    for record in (record for records in winners.values() for record in records):
        for name, value in conditions(record).items():
            seen.setdefault(name, {})[_short(value)] = None
    names = {"together": "trials trained together"}
    differing = {name: values for name, values in seen.items() if len(values) > 1}
    told = "; ".join(f"{names.get(n, n)} ({' and '.join(v)})" for n, v in differing.items())
    return f"{told}. {_ONE_BY_ONE}" if "together" in differing else told


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {version}" for name, version in sorted(value.items()))
    return str(value)
