"""Figure 3: learning curves of deep auto-encoders on MNIST and on CURVES-like images.

Every arm (`arms.py`) is the best of a random search with equally many trials over equally many
decades, at seed 0; the winners then train with three seeds, on MNIST for 750,000 updates, which was
Sutskever's budget. The error is the squared error over the whole training set.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from equilibrate.paper.arms import ARMS
from equilibrate.paper.figure import Records
from equilibrate.paper.records import Data, Store
from equilibrate.paper.studies import train
from equilibrate.study.outcome import winner
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.progress import Progress
from equilibrate.study.trial import Trial

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Task:
    """One panel: a problem, the epochs of its search and of its winners."""

    problem: str
    epochs: int
    winner_epochs: int


@dataclass(frozen=True)
class Settings:
    """All that the records of the figure depend on."""

    tasks: tuple[Task, ...] = (Task("mnist", 1000, 2500), Task("curves-like", 1000, 1000))
    arms: tuple[str, ...] = tuple(ARMS)
    trials: int = 8
    seeds: int = 3
    precision: str = "tf32"
    quick: bool = False
    seed: int = 0


# One trial an arm at the settings that the full search found good.
QUICK = Settings(
    tasks=(Task("curves-like", 40, 40),),
    arms=("sgd", "rmsprop", "jacobi", "esgd-warm", "esgd"),
    trials=1,
    seeds=1,
    precision="float32",
    quick=True,
)


def settings(quick: bool) -> Settings:
    """Return the settings of the full or of the quick figure."""
    return QUICK if quick else Settings()


def units(chosen: Settings) -> float:
    """Return the work: trials times epochs."""
    arms = len(chosen.arms)
    return float(
        sum(
            arms * (chosen.trials * task.epochs + _repeats(chosen, task) * task.winner_epochs)
            for task in chosen.tasks
        )
    )


def _repeats(chosen: Settings, task: Task) -> int:
    """Return how often a winner trains anew: its search is one of the seeds if it is as long."""
    return chosen.seeds - (task.winner_epochs == task.epochs)


def compute(chosen: Settings, store: Store, progress: Progress) -> Records:
    """Train every task's search and winners, or read their records."""
    return [record for task in chosen.tasks for record in _task(chosen, task, store, progress)]


def _task(chosen: Settings, task: Task, store: Store, progress: Progress) -> list[Data]:
    name = f"figure3-{task.problem}{'-quick' if chosen.quick else ''}"
    problem = BUILT_IN[task.problem](store.data)
    trial = partial(_trial, problem, "" if store.frozen else problem.fingerprint, chosen.precision)
    searched = [
        trial(arm, drawn, 0, task.epochs)
        for arm in chosen.arms
        for drawn in ARMS[arm].settings(chosen.trials, seed=chosen.seed)
    ]
    records = train(store, name, problem, ARMS, searched, progress)
    first = int(task.winner_epochs == task.epochs)
    repeated = [
        trial(arm, best["settings"], seed, task.winner_epochs)
        for arm in chosen.arms
        if (best := winner(r for r in records if r["method"] == arm)) is not None
        for seed in range(first, chosen.seeds)
    ]
    if repeated:
        records += train(store, name, problem, ARMS, repeated, progress)
    return [{**record, "task": task.problem} for record in records]


def _trial(
    problem: Problem,
    fingerprint: str,
    precision: str,
    arm: str,
    drawn: dict[str, Any],
    seed: int,
    epochs: int,
) -> Trial:
    size = problem.batch_size
    return Trial(problem.name, fingerprint, arm, drawn, seed, size, epochs, precision)
