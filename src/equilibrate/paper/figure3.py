"""Figure 3: learning curves of deep auto-encoders on MNIST and on CURVES-like images.

Every arm (`arms.py`) is the best of a random search with equally many trials over equally many
decades, at seed 0; on MNIST the winners go on to 750,000 updates, Sutskever's budget. They then
train with two more seeds. The error is the squared error over the whole training set.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equilibrate.paper import figure3_claims, figure3_drawing
from equilibrate.paper.arms import ARMS, PUBLISHED
from equilibrate.paper.figure import Description, Figure, Judgement, Records
from equilibrate.paper.figure3_arms import up_to
from equilibrate.paper.figure3_timing import timing
from equilibrate.paper.records import AT_ONCE, Data, NotRecorded, Store
from equilibrate.paper.studies import known, study_folder, train
from equilibrate.study.journal import read_records
from equilibrate.study.mnist import mnist_at_hand
from equilibrate.study.outcome import winner
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.progress import Progress
from equilibrate.study.search import Search, past, random_search
from equilibrate.study.trial import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


@dataclass(frozen=True)
class Task:
    """One panel: a problem, the epochs of its search, and to how many its winners go on.

    An optional task is left out where its data files are not at hand.
    """

    problem: str
    epochs: int
    long_epochs: int
    arms: tuple[str, ...] = tuple(ARMS)
    optional: bool = False


@dataclass(frozen=True)
class Settings:
    """All that the records of the figure depend on."""

    tasks: tuple[Task, ...] = (Task("mnist", 1000, 2500), Task("curves-like", 1000, 1000))
    trials: int = 8
    seeds: int = 3
    precision: str = "tf32"
    timed_together: int = 16
    evaluate_every: float | None = None  # epochs; None means about a hundred points
    quick: bool = False
    seed: int = 0


QUICK = Settings(
    tasks=(
        Task("curves-like", 14, 14, ("sgd", "rmsprop", "jacobi", "esgd-warm", "esgd")),
        Task("mnist", 1, 1, ("sgd", "rmsprop", "esgd"), optional=True),
    ),
    trials=1,
    seeds=1,
    precision="float32",
    timed_together=1,
    evaluate_every=2,
    quick=True,
)


def settings(quick: bool) -> Settings:
    """Return the settings of the full or of the quick figure."""
    return QUICK if quick else Settings()


def units(chosen: Settings) -> float:
    """Return the work: trials times epochs."""

    def each(task: Task) -> int:
        return _search(chosen, task).work(chosen.trials) + (chosen.seeds - 1) * task.epochs

    return float(sum(len(task.arms) * each(task) for task in chosen.tasks))


def _search(chosen: Settings, task: Task) -> Search:
    """Return the search: all trials of an arm to its epochs, the best one of them further."""
    if task.long_epochs == task.epochs:
        return random_search(task.epochs)
    return Search((task.epochs, task.long_epochs), eta=max(2, chosen.trials))


def compute(
    chosen: Settings,
    store: Store,
    progress: Progress,
    problems: Mapping[str, Callable[[Path | None], Problem]] = BUILT_IN,
) -> Records:
    """Train every task's search and winners, time the arms, or read the records of all that.

    Reading leaves out a task without records, and the seeds and times that are not recorded yet: so
    a part can be shown before the whole.
    """
    records: list[Data] = []
    for task in chosen.tasks:
        if not _at_hand(chosen, task, store):
            progress.advance(len(task.arms) * task.epochs, computed=False)
            continue
        problem = problems[task.problem](store.data)
        records += _task(chosen, task, problem, store, progress)
        records += _timing(chosen, task, problem, store)
    if not records:
        raise NotRecorded("figure3: no task is recorded")
    return records


def _at_hand(chosen: Settings, task: Task, store: Store) -> bool:
    """Tell whether a task was recorded, or can be computed here where it is optional."""
    if store.frozen:
        return bool(read_records(study_folder(store, _study(task, quick=chosen.quick))))
    return not task.optional or mnist_at_hand(store.data)


def _study(task: Task, *, quick: bool) -> str:
    return f"figure3-{task.problem}{'-quick' if quick else ''}"


def _split(records: Records) -> tuple[list[Data], dict[str, dict[str, float]]]:
    """Tell the trained trials from the times of an update, by task and arm."""
    trained = [record for record in records if "timing" not in record]
    timed = {r["timing"]: r["data"]["seconds_per_update"] for r in records if "timing" in r}
    return trained, timed


def draw(chosen: Settings, records: Records) -> "Picture":
    """Draw the figure."""
    return figure3_drawing.draw(*_split(records))


def describe(chosen: Settings, records: Records) -> Description:
    """Return caption and tables."""
    return figure3_drawing.describe(*_split(records))


def claims(chosen: Settings, records: Records) -> list[Judgement]:
    """Judge the claims that rest on learning curves."""
    return figure3_claims.claims(_split(records)[0])


def _task(
    chosen: Settings, task: Task, problem: Problem, store: Store, progress: Progress
) -> list[Data]:
    name = _study(task, quick=chosen.quick)
    trial = partial(_trial, problem, "" if store.frozen else problem.fingerprint, chosen.precision)
    every, search = chosen.evaluate_every, _search(chosen, task)
    searched = [
        trial(arm, drawn, 0, task.long_epochs) for arm in task.arms for drawn in _drawn(chosen, arm)
    ]
    at_once = AT_ONCE if store.device == "cuda" else 1  # on a CPU a stack of such networks loses
    together = partial(train, store, name, problem, ARMS, every=every, at_once=at_once)
    longest = together(searched, progress, search=search)
    records = [up_to(record, task.epochs) for record in longest]
    best = {arm: winner(r for r in records if r["method"] == arm) for arm in task.arms}
    won = {arm: found["settings"] for arm, found in best.items() if found is not None}
    repeated = [
        trial(arm, drawn, seed, task.epochs)
        for arm, drawn in won.items()
        for seed in range(1, chosen.seeds)
    ]
    if store.frozen:
        repeated = known(store, name, repeated)
    if repeated:
        records += together(repeated, progress)
    records += [r for r in longest if past(r["curve"], task.epochs)]
    return [{**record, "task": task.problem} for record in records]


def _timing(chosen: Settings, task: Task, problem: Problem, store: Store) -> list[Data]:
    asked = (task.problem, task.arms, chosen.precision, chosen.timed_together)
    try:
        return [{**timing(store, problem, *asked), "timing": task.problem}]
    except NotRecorded:  # of a frozen store
        return []


def _drawn(chosen: Settings, arm: str) -> list[dict[str, Any]]:
    """Return the settings an arm is searched over; in a quick run, those published."""
    if chosen.quick:
        return [{**ARMS[arm].fixed, **PUBLISHED[arm]}]
    return ARMS[arm].settings(chosen.trials, seed=chosen.seed)


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


FIGURE = Figure(
    name="figure3",
    title="Figure 3: learning curves of deep auto-encoders",
    settings=settings,
    units=units,
    compute=compute,
    draw=draw,
    describe=describe,
    claims=claims,
    needs_gpu=True,
)
