"""Schedules applied to running trials: learning rates and momenta set before an update."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from equilibrate.study.schedules import changes_at_every_update, learning_rate_factor, momentum_at


class Scheduling:
    """The schedules of several trials; `apply` hands over only what changes.

    Args:
        settings: complete settings, one mapping a trial.
        totals: updates of each trial's whole run.
    """

    def __init__(self, settings: Sequence[Mapping[str, Any]], totals: Sequence[int]) -> None:
        self._settings, self._totals = settings, totals
        self._last: dict[str, list[float]] = {}
        self._names = [
            name
            for name in ("lr", "momentum")
            if any(own[f"{name}_schedule"] != "constant" for own in settings)
        ]

    @property
    def restless(self) -> tuple[str, ...]:
        """The numbers that change at every update of some trial."""
        rates = [own["lr_schedule"] for own in self._settings]
        return ("lr",) if any(map(changes_at_every_update, rates)) else ()

    def apply(
        self,
        update: int,
        set_numbers: Callable[[str, Sequence[float]], None],
        but: Collection[str] = (),
    ) -> None:
        """Set the numbers, `but` some, that differ from those of the last update applied here."""
        for name in self._names:
            values = [] if name in but else self.at(name, update)
            if values and self._last.get(name) != values:
                set_numbers(name, values)
                self._last[name] = values

    def forget(self) -> None:
        """Hand over everything at the next update: the numbers have been changed from outside."""
        self._last = {}

    def at(self, name: str, update: int) -> list[float]:
        """Return the learning rate or the momentum of every trial at an update."""
        pairs = zip(self._settings, self._totals, strict=True)
        if name == "lr":
            return [
                own["lr"] * learning_rate_factor(own["lr_schedule"], update, total)
                for own, total in pairs
            ]
        return [
            momentum_at(own["momentum_schedule"], own["momentum"], update, total)
            for own, total in pairs
        ]
