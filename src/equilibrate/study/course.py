"""What all groups of a study share: how a trainer behaves, how they train, how far they are."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from equilibrate.study.trial import Trial


class Trainer(Protocol):
    """What a group needs of a trainer: `advance` in two pieces must equal `advance` in one."""

    @property
    def trials(self) -> Sequence[Trial]:
        """The trials, one a row."""

    @property
    def updates(self) -> int:
        """Updates made so far."""

    def advance(self, iterations: int, /) -> None:
        """Train, and return when it is done (an accelerator's queue is empty)."""

    def errors(self) -> list[float]:
        """Return the reported error of each trial; not finite where it diverged."""

    def keep(self, rows: list[int], /) -> None:
        """Drop the other trials; there is at least one row."""

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values from which training goes on to the last bit."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Take up such a state."""


@dataclass(frozen=True)
class Moment:
    """How far a study is, for a progress display. Work is counted in trials times epochs.

    `best` is the lowest error of the trials now training, at their last evaluation; `trained` is
    the work of this process, `done` holds what was found recorded and what a trial that diverged
    does not need as well;
    `diverged` counts the trials of the method that have diverged.
    """

    method: str
    trials: int
    epoch: float
    best: float | None
    trained: float
    done: float
    total: float
    diverged: int = 0
    waiting: int = 0  # trials of the method that have no worker yet, on a cluster
    alone: bool = True  # no other method trains at the same time


@dataclass
class Course:
    """How the groups of a study train, and how far all of them are."""

    make_trainer: Callable[[list[Trial]], Trainer]
    epochs: int
    updates_per_epoch: int
    evaluate_every: int  # updates
    checkpoint_seconds: float
    device: torch.device | str
    report: Callable[[Moment], None]
    progress: dict[str, float]  # epochs done, by key
    total: float  # trials times epochs, if none diverges
    diverged: Counter[str] = field(default_factory=Counter)  # trials, by method
    trained: float = 0.0

    def tell(self, method: str, trials: int, epoch: float, best: float | None, **more: Any) -> None:
        """Report how far trials of a method are, and the whole study with them."""
        done = min(sum(self.progress.values()), self.total)
        counts = (self.trained, done, self.total, self.diverged[method])
        self.report(Moment(method, trials, epoch, best, *counts, **more))

    def epoch(self, updates: int) -> float:
        """Return the epoch as a whole number where it is one."""
        whole, rest = divmod(updates, self.updates_per_epoch)
        return updates / self.updates_per_epoch if rest else whole
