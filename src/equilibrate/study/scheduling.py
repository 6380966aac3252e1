"""Schedules applied to running trials: learning rates and momenta set before an update."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from equilibrate.study.schedules import learning_rate_factor, momentum_at


class Scheduling:
    """The schedules of several trials; `apply` hands over only what changes.

    Args:
        settings: complete settings, one mapping a trial.
        totals: updates of each trial's whole run.
    """

    def __init__(self, settings: Sequence[Mapping[str, Any]], totals: Sequence[int]) -> None:
        self._settings, self._totals = settings, totals
        self._last: dict[str, list[float]] = {}

    def apply(self, update: int, set_numbers: Callable[[str, Sequence[float]], None]) -> None:
        """Set the numbers that differ from those of the last update applied here."""
        for name, values in self._at(update).items():
            if self._last.get(name) != values:
                set_numbers(name, values)
                self._last[name] = values

    def forget(self) -> None:
        """Hand over everything at the next update: the numbers have been changed from outside."""
        self._last = {}

    def _at(self, update: int) -> dict[str, list[float]]:
        numbers: dict[str, list[float]] = {}
        pairs = list(zip(self._settings, self._totals, strict=True))
        if any(s["lr_schedule"] != "constant" for s in self._settings):
            numbers["lr"] = [
                s["lr"] * learning_rate_factor(s["lr_schedule"], update, total)
                for s, total in pairs
            ]
        if any(s["momentum_schedule"] != "constant" for s in self._settings):
            numbers["momentum"] = [
                momentum_at(s["momentum_schedule"], s["momentum"], update, total)
                for s, total in pairs
            ]
        return numbers
