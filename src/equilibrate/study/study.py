"""A study: a list of trials known in advance, each of them trained once and recorded.

Resuming is skipping what is recorded and going on from the checkpoints; enlarging a study is
running it with a longer list. A record's numbers do not depend on how often the study was stopped:
which trials train together is decided once and remembered (`choices.json`), for neighbours in a
stack may change the last bit.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from equilibrate.study import checkpoint
from equilibrate.study.choices import Choices
from equilibrate.study.course import Course, Moment, Trainer
from equilibrate.study.crew import Crew, InTurn
from equilibrate.study.files import say
from equilibrate.study.group import Group
from equilibrate.study.journal import Journal, Record
from equilibrate.study.problem import Problem
from equilibrate.study.search import Search, cut, error_at, past, random_search
from equilibrate.study.trial import Trial

Together = Callable[[list[Trial]], list[list[Trial]]]


def run_study(
    problem: Problem,
    trials: Sequence[Trial],
    folder: Path | str,
    *,
    make_trainer: Callable[[list[Trial]], Trainer],
    together: Together,
    search: Search | None = None,
    evaluate_every: float | None = None,
    checkpoint_seconds: float = 60.0,
    report: Callable[[Moment], None] = lambda moment: None,
    device: torch.device | str = "cpu",
    mixed: bool = False,
    crew: Crew | None = None,
) -> dict[str, Record]:
    """Train the trials that are not recorded in the folder; return the records of all, by key.

    Args:
        problem: what is trained; only the number of updates in an epoch is read here.
        trials: all of one problem, batch size and number of epochs.
        folder: of the records, checkpoints and choices; made where it is missing.
        make_trainer: returns a trainer of the given trials, at their start.
        together: splits trials of one method into those that train at once; all trials if `mixed`.
        search: how far the trials of a method train; None trains all to the end.
        evaluate_every: epochs between two points of a curve; None means about 100 points.
        checkpoint_seconds: the most training, in seconds, that a kill may cost.
        report: called now and then with how far the study is.
        device: named in the records.
        mixed: let trials of several methods train at once; their times are then not comparable.
        crew: who trains; None is this process, one group after the other.

    Raises:
        StudyError: the folder cannot be written or is in use; the text says what to do.
    """
    trials = list({trial.key: trial for trial in trials}.values())
    search = search or random_search(trials[0].epochs if trials else 0)
    _check(problem, trials, search)
    if not trials:
        return {}
    course = _course(
        problem, trials, search, evaluate_every,
        make_trainer=make_trainer, checkpoint_seconds=checkpoint_seconds, device=device,
        report=report,
    )  # fmt: skip
    with Journal(folder) as journal:
        _note_what_is_there(journal, trials, course, search)
        parts = [trials] if mixed else _by_method(trials)
        _run_parts(parts, together, course, search, journal, crew or InTurn())
        return {trial.key: journal.records[trial.key] for trial in trials}


def _course(
    problem: Problem, trials: list[Trial], search: Search, every: float | None, **how: Any
) -> Course:
    """Return how the trials train, evaluated `every` so many epochs, before any of them has."""
    per_epoch, epochs = problem.updates_per_epoch, search.rungs[-1]
    every = every or max(1, round(epochs / 100))
    return Course(
        epochs=epochs,
        updates_per_epoch=per_epoch,
        evaluate_every=max(1, round(every * per_epoch)),
        progress=dict.fromkeys((trial.key for trial in trials), 0.0),
        total=search.work_of(trial.method for trial in trials),
        **how,
    )


def _run_parts(
    parts: list[list[Trial]],
    together: Together,
    course: Course,
    search: Search,
    journal: Journal,
    crew: Crew,
) -> None:
    """Train one part after the other; a crew of several gets the groups of all at once."""
    for part in [parts] if crew.several else [[asked] for asked in parts]:
        groups = [g for asked in part for g in _groups(asked, together, course, journal)]
        _run_rungs([trial for asked in part for trial in asked], groups, search, journal, crew)


def _run_rungs(
    asked: list[Trial], groups: list[Group], search: Search, journal: Journal, crew: Crew
) -> None:
    """Train groups from rung to rung, and cut among the trials of a method between two."""
    running = [trial.key for trial in asked]
    for rung in search.rungs[:-1]:
        _train(groups, rung, crew, Group.close if len(groups) > 1 else lambda group: None)
        running = [
            key
            for rivals in _by_method(trial for trial in asked if trial.key in running)
            for key in _passing([t.key for t in rivals], groups, rung, search.eta, journal)
        ]
        for group in groups:
            group.drop([t.key for t in group.trials if t.key not in running], "cut", rung)
    _train(groups, search.rungs[-1], crew, _finish)


def _train(groups: list[Group], rung: int, crew: Crew, arrived: Callable[[Group], None]) -> None:
    # A group whose last trial was recorded has nothing to open, not even a checkpoint.
    training = [group for group in groups if group.trials]
    if training:
        crew.train(training, rung * training[0].course.updates_per_epoch, arrived)


def _finish(group: Group) -> None:
    group.drop([trial.key for trial in group.trials], "finished")


def _passing(
    running: list[str], groups: list[Group], rung: int, eta: int, journal: Journal
) -> list[str]:
    """Return the trials that train on; those found beyond the rung passed it in an earlier run."""
    curves = {key: record["curve"] for key, record in journal.records.items()}
    beyond = {key for key in running if key in curves and past(curves[key], rung)}
    for group in groups:
        curves.update({trial.key: group.curves[trial.key] for trial in group.trials})
        if group.updates > rung * group.course.updates_per_epoch:
            beyond.update(trial.key for trial in group.trials)
    best = cut([error_at(curves[key], rung) for key in running], eta=eta)
    return [key for place, key in enumerate(running) if place in best or key in beyond]


def _groups(
    asked: list[Trial], together: Together, course: Course, journal: Journal
) -> list[Group]:
    """Return the groups with something to record: as they were decided, new ones for the rest."""
    choices = Choices(journal.folder)
    decided: list[list[str]] = choices.get("groups", [])
    by_key = {trial.key: trial for trial in asked}
    missing = [trial.key for trial in asked if trial.key not in journal.records]
    groups = []
    for keys in decided:
        members = [by_key[key] for key in keys if key in by_key]
        if len(members) < len(keys):
            continue  # of another study, or of a longer list: left as it is until that is asked for
        if any(key in missing for key in keys):
            groups.append(Group(members, course, journal))
            missing = [key for key in missing if key not in keys]
        else:
            checkpoint.discard(Group(members, course, journal).path)  # a kill came before this
    new = together([by_key[key] for key in missing]) if missing else []
    _check_split(new, missing)
    if new:
        choices.set("groups", [*decided, *([trial.key for trial in group] for group in new)])
    return [*groups, *(Group(list(group), course, journal) for group in new)]


def _note_what_is_there(
    journal: Journal, trials: list[Trial], course: Course, search: Search
) -> None:
    found = [journal.records[trial.key] for trial in trials if trial.key in journal.records]
    # What another search cut will not be trained on, so that nothing of it is left to do.
    ends = {r["key"]: r["rung"] if r["rung"] in search.rungs else course.epochs for r in found}
    course.progress.update(ends)
    course.diverged.update(r["method"] for r in found if r["status"] == "diverged")
    cut_before = sum(record["status"] == "cut" for record in found)
    if cut_before and len(search.rungs) == 1:
        say(
            f"{journal.path}: {cut_before} of these trials were cut by an earlier search and stay "
            f"so; to train them to the end, choose another folder"
        )


def _by_method(trials: Iterable[Trial]) -> list[list[Trial]]:
    methods: dict[str, list[Trial]] = {}
    for trial in trials:
        methods.setdefault(trial.method, []).append(trial)
    return list(methods.values())


def _check(problem: Problem, trials: list[Trial], search: Search) -> None:
    for trial in trials:
        if trial.epochs != search.rungs[-1]:
            raise ValueError(
                f"the search ends at epoch {search.rungs[-1]}, a trial of {trial.method} at "
                f"{trial.epochs}; run them as two studies"
            )
        if trial.batch_size != problem.batch_size:
            raise ValueError(
                f"{problem.name} has batches of {problem.batch_size}, a trial of {trial.method} "
                f"of {trial.batch_size}; give run_study the problem with that batch size"
            )


def _check_split(groups: list[list[Trial]], keys: list[str]) -> None:
    if sorted(trial.key for group in groups for trial in group) != sorted(keys):
        raise ValueError("together(trials) must put every trial into exactly one group")
