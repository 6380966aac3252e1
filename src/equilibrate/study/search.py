"""How far the trials of a method train: all to the end, or the better ones at each rung further.

A search is a list of rungs, in epochs; the last one is the end. Random search has no other. In
successive halving (Jamieson and Talwalkar 2016) all trials train to the first rung, the best 1/eta
of them to the second, and so on; who is stopped is recorded as "cut", with its curve and the rung.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Search:
    """The rungs of a search, in epochs, and the share 1/eta of trials that passes each."""

    rungs: tuple[int, ...]
    eta: int = 3

    def __post_init__(self) -> None:
        if list(self.rungs) != sorted(set(self.rungs)) or not self.rungs or self.rungs[0] < 0:
            raise ValueError(f"rungs must be growing numbers of epochs; got {self.rungs}")
        if self.eta < 2:
            raise ValueError(f"eta must be 2 or more, for 1 in eta trials is kept; got {self.eta}")

    def work(self, trials: int) -> int:
        """Return trials times epochs of one method, if none of its trials diverges.

        Example:
            >>> Search((10, 100), eta=4).work(4)
            130
        """
        done, before = 0, 0
        for rung in self.rungs:
            done += trials * (rung - before)
            trials, before = min(trials, max(1, trials // self.eta)), rung
        return done

    def work_of(self, methods: Iterable[str]) -> int:
        """Return the work of all trials, of which the method of each is given.

        Example:
            >>> Search((10, 100), eta=4).work_of(["sgd"] * 4 + ["esgd"])
            230
        """
        return sum(map(self.work, Counter(methods).values()))


def random_search(epochs: int) -> Search:
    """Every trial trains to the end.

    Example:
        >>> random_search(100).rungs
        (100,)
    """
    return Search((epochs,))


def successive_halving(epochs: int, trials: int, *, eta: int = 3) -> Search:
    """Rungs at E/eta^k epochs, as many as leave at least one of a method's trials at the end.

    Example:
        >>> successive_halving(100, trials=9).rungs
        (11, 33, 100)
        >>> successive_halving(2, trials=1000).rungs
        (2,)
    """
    rungs, left = [epochs], trials // eta
    while left >= 1 and epochs // eta ** len(rungs) >= 1:
        rungs.append(epochs // eta ** len(rungs))
        left //= eta
    return Search(tuple(reversed(rungs)), eta)


def cut(errors: Sequence[float], *, eta: int = 3) -> list[int]:
    """Return which trials pass a rung: the best 1/eta, at least one, in the order given.

    Trials that diverged count among those that came, and never pass; a tie goes to the earlier.

    Example:
        >>> cut([0.3, 0.1, float("inf"), 0.2, 0.1, 0.4], eta=3)
        [1, 4]
    """
    places = [place for place, error in enumerate(errors) if math.isfinite(error)]
    best = sorted(places, key=lambda place: errors[place])  # stable: ties stay in order
    return sorted(best[: max(1, len(errors) // eta)])


def error_at(curve: Mapping[str, Sequence[Any]], epoch: float) -> float:
    """Return a curve's error at an epoch; infinity where the trial did not come that far.

    Example:
        >>> curve = {"epoch": [0, 2, 4], "error": [3.0, 2.0, 1.0]}
        >>> error_at(curve, 2), error_at(curve, 3), error_at(curve, 5)
        (2.0, 2.0, inf)
    """
    reached = [place for place, at in enumerate(curve["epoch"]) if at <= epoch]
    if not reached or curve["epoch"][-1] < epoch:
        return math.inf
    return float(curve["error"][reached[-1]])


def past(curve: Mapping[str, Sequence[Any]], epoch: float) -> bool:
    """Tell whether a trial has trained beyond an epoch."""
    return bool(curve["epoch"]) and curve["epoch"][-1] > epoch
