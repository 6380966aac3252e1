"""Who trains the groups of a study: this process, one after the other, or the workers of a cluster.

A crew changes when and where a group trains, never what it computes: the numbers of a record are
the same to the last bit, on machines of one kind and with equally many threads.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from equilibrate.study.group import Group


class Crew(Protocol):
    """Trains groups."""

    several: bool
    """Whether groups train at the same time; the groups of all methods are then handed over."""

    def train(
        self, groups: Sequence[Group], updates: int, arrived: Callable[[Group], None]
    ) -> None:
        """Train every group to a number of updates; call `arrived` with each as it gets there."""


class InTurn:
    """This process, one group after the other."""

    several = False

    def train(
        self, groups: Sequence[Group], updates: int, arrived: Callable[[Group], None]
    ) -> None:
        """Train every group to a number of updates."""
        for group in groups:
            group.train_to(updates)
            arrived(group)
