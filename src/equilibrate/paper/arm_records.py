"""What the records of a search say of one arm on one task: trials, winner, the winner's seeds."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from equilibrate.paper.arms import ARMS
from equilibrate.paper.records import Data
from equilibrate.study.methods import Method
from equilibrate.study.naming import canonical
from equilibrate.study.outcome import SEARCH_SEED, Spread, cost_to


@dataclass(frozen=True)
class Arm:
    """One arm on one task.

    Args:
        name: of the arm.
        label: its name for tables and plots.
        searched: the records of its search.
        best: the trial of the search that won.
        seeds: the winner's settings at every seed, as long as the search or as the longest run.
        long: the winner as long as it was trained, at every seed that was.
    """

    name: str
    label: str
    searched: Sequence[Data]
    best: Mapping[str, Any]
    seeds: Sequence[Data]
    long: Sequence[Data]

    @property
    def longest(self) -> Data:
        """The longest run; of two seeds the one that came further."""
        return max(self.long, key=_length)

    def error(self, epoch: float | None = None) -> Spread:
        """The error at an epoch (at the end of the runs where None is given), over seeds."""
        return Spread.of([error_at(record, epoch) for record in self.seeds])

    @property
    def last(self) -> float:
        """The error at the end of the longest run."""
        return error_at(self.longest)

    @property
    def trained(self) -> int:
        """The epochs of the longest run, as far as it came."""
        return int(self.longest["curve"]["epoch"][-1])

    @property
    def updates_per_epoch(self) -> float:
        """The updates that an epoch has."""
        curve = self.best["curve"]
        return float(curve["updates"][-1] / curve["epoch"][-1])

    def epochs_to(self, target: float) -> float:
        """The epochs until the longest run has measured an error of at most `target`."""
        curve = self.longest["curve"]
        epochs_per_update: float = curve["epoch"][-1] / curve["updates"][-1]
        return cost_to(self.longest, target) * epochs_per_update


def error_at(record: Mapping[str, Any], epoch: float | None = None) -> float:
    """The error last measured up to an epoch; infinite where the trial diverged or ended before.

    Example:
        >>> curve = {"epoch": [0, 10, 20], "error": [5.0, 2.0, 1.0]}
        >>> error_at({"status": "finished", "curve": curve}, 15)
        2.0
        >>> cut = {"status": "cut", "curve": curve}
        >>> error_at(cut), error_at(cut, 30)
        (1.0, inf)
    """
    epochs, errors = record["curve"]["epoch"], record["curve"]["error"]
    status = record["status"]
    beyond = status == "diverged" if epoch is None else epoch > max(epochs, default=-1)
    if status != "finished" and beyond:
        return math.inf
    known = [e for when, e in zip(epochs, errors, strict=True) if epoch is None or when <= epoch]
    return float(known[-1]) if known else math.inf


def up_to(record: Data, epochs: int) -> Data:
    """Return a record as it was after so many epochs of a longer run, cut then or carried on.

    Example:
        >>> curve = {"epoch": [0, 10, 20], "error": [5.0, 2.0, 1.0]}
        >>> run = {"status": "cut", "epochs": 20, "curve": curve, "final_error": 1.0}
        >>> up_to(run, 10)["final_error"], up_to(run, 10)["status"]
        (2.0, 'finished')
    """
    kept = sum(epoch <= epochs for epoch in record["curve"]["epoch"])
    curve = {name: values[:kept] for name, values in record["curve"].items()}
    if not kept or curve["epoch"][-1] < epochs:
        return {**record, "epochs": epochs}  # diverged on the way
    end = {"status": "finished", "final_error": curve["error"][-1]}
    return {**record, **end, "epochs": epochs, "curve": curve}


def furthest(records: Iterable[Data]) -> Data | None:
    """Return the trial of a search that came furthest, the lowest of these; None if all diverged.

    A search that ran to its end has finished trials, and they came furthest. One that was ended
    early (`study.conclude`) has only trials that were cut.

    Example:
        >>> curves = {"a": ([0, 10], [5, 1]), "b": ([0, 20], [5, 3]), "c": ([0, 20], [5, 2])}
        >>> records = [
        ...     {"name": name, "seed": 0, "status": "cut", "curve": {"epoch": e, "error": y}}
        ...     for name, (e, y) in curves.items()
        ... ]
        >>> furthest(records)["name"]
        'c'
    """
    searched = [r for r in records if r["seed"] == SEARCH_SEED and r["status"] != "diverged"]
    trained = [record for record in searched if record["curve"]["epoch"]]
    return min(trained, key=lambda r: (-r["curve"]["epoch"][-1], error_at(r)), default=None)


def arms_of(
    records: Sequence[Data],
    task: str,
    methods: Mapping[str, Method] = ARMS,
    *,
    long_seeds: bool = False,
) -> dict[str, Arm]:
    """Return the arms of a task that have a winner, in the order of the figure.

    `long_seeds` tells that the seeds are trained as long as the longest run, not as the search.
    """
    mine = [record for record in records if record["task"] == task]
    found = {}
    for name, method in methods.items():
        own = [record for record in mine if record["method"] == name]
        shortest = min((record["epochs"] for record in own), default=0)
        searched = [r for r in own if r["epochs"] == shortest and r["seed"] == SEARCH_SEED]
        best = furthest(searched)
        if best is not None:
            same = [r for r in own if canonical(r["settings"]) == canonical(best["settings"])]
            most = max(record["epochs"] for record in same)
            long, short = (_of_length(same, epochs) for epochs in (most, shortest))
            seeds = long if long_seeds else short
            found[name] = Arm(name, method.label, searched, best, seeds, long)
    return found


def by_settings(records: Iterable[Data]) -> list[list[Data]]:
    """Return runs of one method, settings and length together, each group by its seeds.

    Example:
        >>> run = {"method": "a", "settings": {"lr": 1.0}, "epochs": 9, "seed": 0}
        >>> found = by_settings([run | {"seed": 1}, run | {"method": "b"}, run])
        >>> [[(each["method"], each["seed"]) for each in own] for own in found]
        [[('a', 0), ('a', 1)], [('b', 0)]]
    """
    alike: dict[str, list[Data]] = defaultdict(list)
    for record in records:
        alike[canonical([record[name] for name in ("method", "settings", "epochs")])].append(record)
    return [sorted(own, key=lambda record: int(record["seed"])) for own in alike.values()]


def _of_length(records: Sequence[Data], epochs: int) -> list[Data]:
    own = [record for record in records if record["epochs"] == epochs]
    return sorted(own, key=lambda record: int(record["seed"]))


def _length(record: Data) -> tuple[float, bool]:
    """How far a run came, and whether it is the one of the search."""
    came = record["curve"]["epoch"][-1:] or [0]
    return float(came[0]), record["seed"] == SEARCH_SEED


def told(spread: Spread) -> str:
    """Return a median with its extremes over seeds, as text."""
    if spread.seeds == 1:
        return f"{spread.median:.3g}"
    return f"{spread.median:.3g} [{spread.low:.3g}, {spread.high:.3g}]"


def least_to_most(numbers: Iterable[int]) -> str:
    """Return what several whole numbers are, as text.

    Example:
        >>> least_to_most([2, 5, 2]), least_to_most([3, 3]), least_to_most([])
        ('2 to 5', '3', 'no')
    """
    listed = sorted(numbers)
    return " to ".join(map(str, dict.fromkeys(listed[:1] + listed[-1:]))) or "no"


def ahead(one: Spread, other: Spread) -> bool:
    """Tell whether every seed of one ended below every seed of the other."""
    return one.high < other.low


def numbers_of(arms: Mapping[str, Arm]) -> dict[str, float | None]:
    """Return the arms' medians after the search and the ends of their longest runs, as JSON."""
    found = {name: arm.error().median for name, arm in arms.items()}
    found |= {f"{name}, longest": arm.last for name, arm in arms.items()}
    return {name: value if math.isfinite(value) else None for name, value in found.items()}
