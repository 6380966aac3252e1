"""Robustness: ESGD's error against damping, learning rate, warm-up, probes and forgetting.

What the paper says of these in single sentences (sections 4 and 5) stands here with numbers: that a
damping of 1e-4 is robust, that one probe in 20 steps is enough and nearly free, that row-column
equilibration does not work online; and what it does not say, that Algorithm 1 to the letter breaks
at its first steps. The trials (`robustness_points.py`) share one stack; row-column equilibration
has no stacked rule and trains alone.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from equilibrate.paper import robustness_claims, robustness_drawing
from equilibrate.paper.figure import Description, Figure, Judgement, Records
from equilibrate.paper.records import Data, NotRecorded, Store
from equilibrate.paper.robustness_points import METHODS, QUICK, Point, Settings, Task, points
from equilibrate.paper.robustness_timing import timing
from equilibrate.paper.studies import train
from equilibrate.study.curves import curves_like_images
from equilibrate.study.naming import canonical
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN, reconstruction
from equilibrate.study.progress import Progress
from equilibrate.study.stacked_rules import structure
from equilibrate.study.trial import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

_SMALL_SIZES = (784, 100, 50, 25, 6, 25, 50, 100, 784)
_SMALL_IMAGES = 4000


def _small(_folder: Path | None) -> Problem:
    """Return an auto-encoder that a CPU trains in seconds, for the quick figure."""
    return reconstruction(
        QUICK.task.name,
        _SMALL_SIZES,
        lambda _: curves_like_images(_SMALL_IMAGES),
        "sigmoid",
        None,
    )


PROBLEMS: dict[str, Callable[[Path | None], Problem]] = {**BUILT_IN, "curves-like-small": _small}


def settings(quick: bool) -> Settings:
    """Return the settings of the full or of the quick figure."""
    return QUICK if quick else Settings()


def units(chosen: Settings) -> float:
    """Return the work: trials times epochs, and one for the timing."""
    return 1.0 + sum(
        task.epochs * len(list_trials(chosen, task, "", "", 1)) for task in _tasks(chosen)
    )


def _tasks(chosen: Settings) -> list[Task]:
    return [chosen.task, *([chosen.second] if chosen.second else [])]


def list_trials(
    chosen: Settings, task: Task, problem: str, fingerprint: str, batch_size: int
) -> list[Trial]:
    """Return the trials of a task, each once, equal structures side by side: a stack's blocks."""

    def trial(point: Point) -> Trial:
        return Trial(
            problem, fingerprint, point.method, point.settings, point.seed, batch_size,
            task.epochs, chosen.precision,
        )  # fmt: skip

    found = {t.key: t for t in (trial(p) for p in points(chosen) if p.task == task)}
    return sorted(found.values(), key=_structure)


def _structure(trial: Trial) -> str:
    if trial.method == "row-column":
        return canonical([trial.method])
    return canonical([trial.method, structure(METHODS[trial.method].optimizer, trial.settings)])


def compute(
    chosen: Settings,
    store: Store,
    progress: Progress,
    problems: Mapping[str, Callable[[Path | None], Problem]] = PROBLEMS,
) -> Records:
    """Train every point that has no record yet and time an update, or read the records."""
    records: list[Data] = []
    for task in _tasks(chosen):
        problem = problems[task.problem](store.data)
        records += _task(chosen, task, problem, store, progress)
    first = problems[chosen.task.problem](store.data)
    try:
        how = (chosen.task.problem, chosen.precision, chosen.timing)
        timed = timing(store.for_times(), first, *how)
        records.append({**timed, "timing": chosen.task.problem})
    except NotRecorded:  # the rest can be drawn and judged without it
        pass
    progress.advance()
    return records


def _task(
    chosen: Settings, task: Task, problem: Problem, store: Store, progress: Progress
) -> list[Data]:
    name = f"robustness-{task.problem}{'-quick' if chosen.quick else ''}"
    fingerprint = "" if store.frozen else problem.fingerprint
    listed = list_trials(chosen, task, problem.name, fingerprint, problem.batch_size)
    stacked = [trial for trial in listed if trial.method != "row-column"]
    alone = [trial for trial in listed if trial.method == "row-column"]
    records = train(store, name, problem, METHODS, stacked, progress)
    if alone:
        records += train(store, name, problem, METHODS, alone, progress, at_once=1)
    return [{**record, "task": task.problem} for record in records]


def draw(chosen: Settings, records: Records) -> "Picture":
    """Draw the panels from records alone."""
    return robustness_drawing.draw(chosen, records)


def describe(chosen: Settings, records: Records) -> Description:
    """Return the caption, the literal start and the numbers."""
    return robustness_claims.describe(chosen, records)


def claims(chosen: Settings, records: Records) -> list[Judgement]:
    """Judge S13, S14 and S15."""
    return robustness_claims.claims(chosen, records)


FIGURE = Figure(
    name="robustness",
    title="Robustness of ESGD",
    settings=settings,
    units=units,
    compute=compute,
    draw=draw,
    describe=describe,
    claims=claims,
    needs_gpu=True,
)
