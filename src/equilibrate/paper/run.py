"""Compute what is asked for, gather what is recorded, write the report."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from equilibrate.paper import report
from equilibrate.paper.figure import Figure
from equilibrate.paper.figures import FIGURES
from equilibrate.paper.processes import in_processes
from equilibrate.paper.records import AT_ONCE, NotRecorded, Store
from equilibrate.paper.studies import require_device
from equilibrate.study.crew import Crew
from equilibrate.study.looks import require_drawing
from equilibrate.study.progress import Progress


@dataclass(frozen=True)
class Means:
    """By what studies are computed: no part of what they are."""

    device: str = "cpu"
    data: Path | None = None
    tasks: tuple[str, ...] = ()  # of figures that have several; all where none is named
    arms: tuple[str, ...] = ()  # of figures that compare methods; all where none is named
    at_once: int = AT_ONCE  # trials of a study in one stack, at most
    crew: Crew | None = None  # who trains studies; None is this process
    timed: bool = True  # whether times that are missing are measured
    seeds: int | None = None  # of winners, at most; the others are left for a later run
    ahead: tuple[str, ...] = ()  # arms that train with all seeds before their winner is known
    jobs: int = 1  # figures, and parts of figures, at the same time


CPU = Means()


class NothingToCompute(ValueError):
    """Raised where no figure that was named has a task that was; the user has been told why."""


def run(names: Sequence[str], out: Path, *, quick: bool, command: str, means: Means = CPU) -> Path:
    """Compute the named figures, all where none is named; return the report's path.

    Figures that were not asked for join the report where their records are complete.
    """
    require_drawing()  # before hours of computing, not after
    wanted = _wanted(names, quick, means)
    _compute_at_once(wanted, out, quick, means)
    results = []
    for name, figure in FIGURES.items():
        compute = partial(_compute, means=means) if name in wanted else _recorded
        result = compute(figure, out, quick)
        a_part = means.tasks or means.arms or means.seeds is not None
        if a_part:  # drawn with all that is recorded
            result = _recorded(figure, out, quick) or result
        if result is not None:
            results.append(result)
    return report.write(results, out, quick=quick, command=command)


def record(names: Sequence[str], out: Path, *, quick: bool, means: Means = CPU) -> Path:
    """Compute the named figures and draw nothing; return the folder of their records."""
    wanted = _wanted(names, quick, means)
    _compute_at_once(wanted, out, quick, means)
    for name in wanted:
        _compute(FIGURES[name], out, quick, means=means)
    return out / "records"


def _wanted(names: Sequence[str], quick: bool, means: Means) -> list[str]:
    """Return the figures to compute: those named, else all that can be, if a task of theirs is."""
    wanted = []
    for name in names or _possible(quick, means):
        settings = FIGURES[name].settings(quick)
        if getattr(_part(FIGURES[name], quick, means), "tasks", True):
            wanted.append(name)
        else:
            has = ", ".join(task.problem for task in settings.tasks)
            arms = f"no task asked for has {', '.join(means.arms)}; " if means.arms else ""
            print(f"{name}: not run, {arms}its tasks are {has}", file=sys.stderr)
    if not wanted:
        raise NothingToCompute("nothing to compute: name another --task, or another figure")
    return wanted


def _possible(quick: bool, means: Means) -> list[str]:
    """Return the figures that this device can compute; say which are left out."""
    if quick:
        return [name for name, figure in FIGURES.items() if figure.in_quick]
    needing = [name for name, figure in FIGURES.items() if figure.needs_gpu]
    if means.device == "cuda" or not needing:
        return list(FIGURES)
    print(
        f"{', '.join(needing)}: in full only with --device cuda, quick with --quick; shown here "
        f"where records are complete",
        file=sys.stderr,
    )
    return [name for name in FIGURES if name not in needing]


def _compute_at_once(wanted: Sequence[str], out: Path, quick: bool, means: Means) -> None:
    """With several jobs, record all but times, which are measured afterwards, with nothing beside.

    Figures that train networks come first: they take longest.
    """
    if means.jobs == 1:
        return
    one = replace(means, timed=False, jobs=1)
    listed = [(name, part) for name in wanted for part in _parts(FIGURES[name], quick, one)]
    listed.sort(key=lambda part: not FIGURES[part[0]].needs_gpu)
    in_processes(partial(_compute_part, out=out, quick=quick), listed, means.jobs)


def _parts(figure: Figure, quick: bool, means: Means) -> list[Means]:
    """Return the means to compute every task of a figure by itself, or every arm of a task.

    Arms are parts where their records lie apart: in a quick figure.
    """
    parts, settings = [], _part(figure, quick, means)
    apart = getattr(settings, "quick", False)
    for task in getattr(settings, "tasks", ()):
        own = replace(means, tasks=(task.problem,))
        arms = arms_of(replace(settings, tasks=(task,))) if apart else ()
        parts += [replace(own, arms=(arm,)) for arm in arms] or [own]
    return parts or [means]


def _compute_part(part: tuple[str, Means], *, out: Path, quick: bool) -> None:
    name, means = part
    with suppress(NotRecorded):  # a task whose data are not at hand: the figure does without
        _compute(FIGURES[name], out, quick, means=means)


def _compute(figure: Figure, out: Path, quick: bool, *, means: Means) -> report.Result:
    settings = _part(figure, quick, means)
    if figure.needs_gpu:  # said before data are looked for
        require_device(figure.name, settings.precision, means.device)
    label = f"{figure.name}{' (quick)' if quick else ''}"
    progress = Progress(label, figure.units(settings))
    store = Store(
        out / "records",
        device=means.device,
        data=means.data,
        at_once=means.at_once,
        crew=means.crew,
        timed=means.timed,
        ahead=means.ahead,
    )
    with _threads(None if figure.needs_gpu else 1):
        records = figure.compute(settings, store, progress)
    if store.damaged:
        print(f"rebuilt: {', '.join(store.damaged)}", file=sys.stderr)
    return report.Result(figure, settings, records)


def _part(figure: Figure, quick: bool, means: Means) -> Any:
    """Return the settings with the tasks, arms and seeds that were asked for."""
    settings = figure.settings(quick)
    if means.tasks and hasattr(settings, "tasks"):
        tasks = tuple(task for task in settings.tasks if task.problem in means.tasks)
        settings = replace(settings, tasks=tasks)
    if means.arms:
        settings = _with_arms(settings, means.arms)
    if means.seeds is not None and figure.adds_seeds:
        settings = replace(settings, seeds=min(means.seeds, settings.seeds))
    return settings


def arms_of(settings: Any) -> tuple[str, ...]:
    """Return the arms that a figure's settings compare; those of its tasks, or its own."""
    of_tasks = [arm for task in getattr(settings, "tasks", ()) for arm in getattr(task, "arms", ())]
    return tuple(dict.fromkeys((*getattr(settings, "arms", ()), *of_tasks)))


def _with_arms(settings: Any, arms: Sequence[str]) -> Any:
    """Return the settings with those of their arms that were named."""
    if hasattr(settings, "arms"):
        return replace(settings, arms=tuple(arm for arm in settings.arms if arm in arms))
    kept = [(task, tuple(arm for arm in task.arms if arm in arms)) for task in settings.tasks]
    return replace(settings, tasks=tuple(replace(task, arms=own) for task, own in kept if own))


@contextmanager
def _threads(number: int | None) -> Iterator[None]:
    """Compute with so many threads; None leaves what torch has, for networks that gain from it.

    Small matrices gain little from a second thread, and lose much where it is not free.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _recorded(figure: Figure, out: Path, quick: bool) -> report.Result | None:
    settings = figure.settings(quick)
    progress = Progress(figure.name, figure.units(settings), stream=None)
    try:
        records = figure.compute(settings, Store(out / "records", frozen=True), progress)
    except NotRecorded:
        return None
    return report.Result(figure, settings, records)
