"""A search of several arms on one problem, and its winners repeated with other seeds.

All trials train at seed 0, as far as the search lets each of them, round by round where it has
several; the winners then train with other seeds, or with all of them for longer. Reading needs no
data, and shows what is there before the whole is: a task without its search is left out; rounds,
seeds and times that are not recorded yet are missing.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from equilibrate.paper.arm_plan import ArmSearch
from equilibrate.paper.arm_records import up_to
from equilibrate.paper.arm_seeds import beside, beyond, winners
from equilibrate.paper.arm_timing import timing
from equilibrate.paper.records import AT_ONCE, Data, NotRecorded, Store
from equilibrate.paper.studies import known, recorded, study_folder, train
from equilibrate.study.journal import read_records
from equilibrate.study.mnist import mnist_at_hand, mnist_missing
from equilibrate.study.problem import Problem
from equilibrate.study.progress import Progress
from equilibrate.study.search import Search, past
from equilibrate.study.trial import Trial

Problems = Mapping[str, Callable[[Path | None], Problem]]


def compute_searches(
    searches: Sequence[ArmSearch], store: Store, progress: Progress, problems: Problems
) -> list[Data]:
    """Train every search and its winners, time the arms, or read the records of all that."""
    present = [asked for asked in searches if _at_hand(asked, store)]
    if not present:  # only MNIST is ever left out of what is computed
        raise NotRecorded("no task is recorded" if store.frozen else mnist_missing(store.data))
    records: list[Data] = []
    for asked in searches:
        if asked not in present:
            progress.advance(asked.work, computed=False)
            continue
        problem = problems[asked.problem](store.data)
        trained = _trained(asked, problem, store, progress)
        records += trained + (_timed(asked, problem, store) if trained else [])
    if not records:
        raise NotRecorded("no arm of any task is recorded")
    return records


def split(records: Sequence[Data]) -> tuple[list[Data], dict[str, dict[str, float]]]:
    """Tell the trained trials from the times of an update, by task and arm."""
    trained = [record for record in records if "timing" not in record]
    timed = {r["timing"]: r["data"]["seconds_per_update"] for r in records if "timing" in r}
    return trained, timed


def _at_hand(asked: ArmSearch, store: Store) -> bool:
    """Tell whether a task was recorded, or can be computed here where it is optional."""
    if store.frozen:
        return any(read_records(study_folder(store, asked.study(arm))) for arm in asked.arms)
    return not asked.optional or mnist_at_hand(store.data)


def _trained(asked: ArmSearch, problem: Problem, store: Store, progress: Progress) -> list[Data]:
    trial = partial(_trial, asked, problem, "" if store.frozen else problem.fingerprint)
    at_once = AT_ONCE if store.device == "cuda" else 1  # on a CPU a stack of such networks loses

    def together(trials: list[Trial], search: Search | None = None) -> list[Data]:
        how: Any = {"search": search, "every": asked.every, "at_once": at_once}
        return [
            record
            for study, own in _by_study(asked, trials).items()
            for record in train(store, study, problem, asked.methods, own, progress, **how)
        ]

    stages = _stages(asked, store, trial)
    progress.total += beyond(asked, stages)
    found = [record for stage in stages for record in together(stage, asked.search)]
    early = {record["key"]: record for record in found if record["seed"] != 0}
    longest = [record for record in found if record["seed"] == 0]
    records = [up_to(record, asked.epochs) for record in longest]
    for repeated in _repeated(asked, winners(asked, records), store, trial):
        later = [each for each in repeated if each.key not in early]
        found = [early[each.key] for each in repeated if each.key in early]
        found += together(later) if later else []
        further = repeated[0].epochs > asked.seed_epochs
        records += [up_to(record, asked.epochs) for record in found] if further else found
        longest += found if further else []
    taken = {record["key"] for record in records}
    records += [record for key, record in early.items() if key not in taken]  # of who did not win
    records += [record for record in longest if past(record["curve"], asked.epochs)]
    return [{**record, "task": asked.problem} for record in records]


def _stages(asked: ArmSearch, store: Store, trial: Callable[..., Trial]) -> list[list[Trial]]:
    """Return what trains at once, one stage after the other: the rounds of the search.

    Where every trial trains straight to the end all of them are one stage, and with them the other
    seeds of whoever may win, and those that are recorded: one wide stack is what a GPU does best.
    Trials of an arm are neighbours, so that one optimizer moves them (`study.blocks`).
    """
    rounds = _searched(asked, store, trial)
    if not asked.straight:
        return rounds
    searched = [each for listed in rounds for each in listed]
    every = [
        trial(each.method, each.settings, seed, asked.seed_epochs)
        for each in searched
        for seed in asked.seeds
    ]
    seeds = _known(asked, store, every) if store.frozen else beside(asked, store, searched, every)
    return [sorted([*searched, *seeds], key=lambda each: asked.arms.index(each.method))]


def _repeated(
    asked: ArmSearch,
    winners: Mapping[str, Mapping[str, Any]],
    store: Store,
    trial: Callable[..., Trial],
) -> list[list[Trial]]:
    """Return the winners with more seeds, those of one length together, the longest first.

    Where nothing is trained, those that are recorded.
    """
    pairs = [(arm, seed) for arm in winners for seed in asked.seeds]
    listed = [trial(arm, winners[arm], seed, asked.length(arm, seed)) for arm, seed in pairs]
    if not _carried_on([each for each in listed if each.epochs > asked.seed_epochs], asked, store):
        listed = [replace(each, epochs=asked.seed_epochs) for each in listed]
    found = _known(asked, store, listed) if store.frozen else listed
    lengths = sorted({each.epochs for each in found}, reverse=True)
    return [[each for each in found if each.epochs == epochs] for epochs in lengths]


def _carried_on(trials: Sequence[Trial], asked: ArmSearch, store: Store) -> bool:
    """Tell whether seeds that are carried on count: not where one was ended before the others are.

    All of them or none, so that arms are compared at the same seeds.
    """
    there = _known(asked, store, trials) if trials else []
    records = [
        record
        for study, own in _by_study(asked, there).items()
        for record in recorded(store, study, own)
    ]
    whole = not store.frozen or len(there) == len(trials)
    return whole and all(past(record["curve"], asked.epochs) for record in records)


def _by_study(asked: ArmSearch, trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(asked.study(trial.method), []).append(trial)
    return found


def _known(asked: ArmSearch, store: Store, trials: Sequence[Trial]) -> list[Trial]:
    """Return those of the trials that are recorded."""
    parts = _by_study(asked, trials).items()
    return [trial for study, own in parts for trial in known(store, study, own)]


def _searched(asked: ArmSearch, store: Store, trial: Callable[..., Trial]) -> list[list[Trial]]:
    """Return the trials of every round; where nothing is trained, of those that are complete.

    Where arms are shown apart, the trials of the arms that are.
    """
    end = asked.search.rungs[-1]
    first, *later = [
        [trial(arm, own, 0, end) for arm, listed in each.items() for own in listed]
        for each in asked.rounds
    ]
    if not store.frozen:
        return [first, *later]
    if not asked.apart:
        return [first, *(own for own in later if _known(asked, store, own) == own)]
    found = []
    for listed in (first, *later):
        complete = _complete(listed, _known(asked, store, listed))
        found.append([each for each in listed if each.method in complete])
    return [found[0], *filter(None, found[1:])]


def _complete(trials: Sequence[Trial], recorded: Sequence[Trial]) -> set[str]:
    """Return the methods of which every trial is recorded."""
    asked, there = (Counter(trial.method for trial in listed) for listed in (trials, recorded))
    return {method for method, number in asked.items() if there[method] == number}


def _timed(asked: ArmSearch, problem: Problem, store: Store) -> list[Data]:
    """Return the times of all arms, side by side; where they are missing, of as many rounds' arms.

    A round that came later has not been measured together with those before it.
    """
    for last in range(len(asked.rounds), 0, -1):
        names = dict.fromkeys(arm for each in asked.rounds[:last] for arm in each)
        arms = {arm: asked.methods[arm] for arm in names}
        how = (asked.problem, arms, asked.precision, asked.timed_together)
        with suppress(NotRecorded):  # of a frozen store, or left for later
            found = timing(store.for_times(), f"{asked.figure}-timing", problem, *how)
            return [{**found, "timing": asked.problem}]
    return []


def _trial(
    asked: ArmSearch,
    problem: Problem,
    fingerprint: str,
    arm: str,
    settings: Mapping[str, Any],
    seed: int,
    epochs: int,
) -> Trial:
    size, precision = problem.batch_size, asked.precision
    return Trial(problem.name, fingerprint, arm, settings, seed, size, epochs, precision)
