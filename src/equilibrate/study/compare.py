"""A comparison of methods on one problem, in two phases.

The search: every method has the same number of trials, all with seed 0. Then, where more seeds are
asked for, the winner of each method is trained with the others. Records of both are kept in one
folder; all of it is skipped that is recorded there.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from equilibrate.study.contenders import code_of
from equilibrate.study.course import Trainer
from equilibrate.study.crew import Crew
from equilibrate.study.live import Live
from equilibrate.study.methods import Method
from equilibrate.study.outcome import SEARCH_SEED, Record, judged, winner
from equilibrate.study.problem import Problem
from equilibrate.study.schedules import learning_rate_factor
from equilibrate.study.search import Search, random_search, successive_halving
from equilibrate.study.study import Together, run_study
from equilibrate.study.trial import Trial


@dataclass(frozen=True)
class Plan:
    """What is compared: everything that the numbers depend on.

    Args:
        problem: to be trained.
        methods: to be compared.
        trials: of every method in the search.
        epochs: of a trial.
        seeds: with which the winners are trained, the search's own among them.
        halving: cut the worse trials early, by successive halving.
        precision: one of `trial.PRECISIONS`.
    """

    problem: Problem
    methods: Sequence[Method]
    trials: int = 8
    epochs: int = 20
    seeds: int = 1
    halving: bool = False
    precision: str = "float32"

    @property
    def search(self) -> Search:
        """How far the trials of the search train."""
        if self.halving:
            return successive_halving(self.epochs, self.trials)
        return random_search(self.epochs)

    def searched(self) -> list[Trial]:
        """The trials of the search, method by method."""
        return [
            self._trial(method, settings, SEARCH_SEED)
            for method in self.methods
            for settings in method.settings(self.trials)
        ]

    def repeated(self, records: Sequence[Record]) -> list[Trial]:
        """The winners of a search at the other seeds; a method that has none is left out."""
        ended = judged(records)
        best = {m.name: winner(r for r in ended if r["method"] == m.name) for m in self.methods}
        return [
            self._trial(method, record["settings"], seed)
            for method in self.methods
            if (record := best[method.name]) is not None
            for seed in range(SEARCH_SEED + 1, self.seeds)
        ]

    def _trial(self, method: Method, settings: Mapping[str, Any], seed: int) -> Trial:
        problem = self.problem
        return Trial(
            problem.name,
            problem.fingerprint,
            method.name,
            settings,
            seed,
            problem.batch_size,
            self.epochs,
            self.precision,
            code_of(method),
        )


@dataclass(frozen=True)
class Means:
    """By what it is computed: nothing here is part of a trial's name.

    Args:
        make_trainer: returns a trainer of the given trials, at their start.
        together: splits trials of one method into those that train at once.
        device: named in the records.
        live: makes the display of a phase from its name.
        crew: who trains; None is this process.
    """

    make_trainer: Callable[[list[Trial]], Trainer]
    together: Together
    device: torch.device
    live: Callable[[str, Mapping[str, str], int], Live] = field(default=Live)
    crew: Crew | None = None


def compare(plan: Plan, folder: Path, means: Means) -> list[Record]:
    """Train what is not recorded in the folder; return the records of the whole plan."""
    records = _phase("search", plan, plan.searched(), folder, means, plan.search)
    others = plan.repeated(records)
    if others:
        records += _phase("seeds", plan, others, folder, means, random_search(plan.epochs))
    return records


def adapted(
    methods: Sequence[Method], *, schedule: str | None = None, momentum: float | None = None
) -> tuple[list[Method], list[str]]:
    """The methods with a learning-rate schedule and a momentum of the user's; whom it passes by.

    Args:
        methods: to be compared.
        schedule: a learning-rate schedule (`schedules`); None leaves each method its own.
        momentum: for the optimizers that have one, searched no longer; None likewise.

    Returns:
        The methods, and the names of those whose optimizer takes no `momentum`.
    """
    if schedule is not None:
        learning_rate_factor(schedule, 0, 1)  # raises where there is no such schedule
        methods = [_fixed(method, "lr_schedule", schedule) for method in methods]
    if momentum is None:
        return list(methods), []
    has = {m.name: "momentum" in inspect.signature(m.optimizer).parameters for m in methods}
    changed = [_fixed(m, "momentum", momentum) if has[m.name] else m for m in methods]
    return changed, [name for name, takes in has.items() if not takes]


def _fixed(method: Method, name: str, value: object) -> Method:
    space = {key: where for key, where in method.space.items() if key != name}
    return replace(method, space=space, fixed={**method.fixed, name: value})


def _phase(
    name: str, plan: Plan, trials: list[Trial], folder: Path, means: Means, search: Search
) -> list[Record]:
    labels = {method.name: method.label or method.name for method in plan.methods}
    named = {trial.method: labels[trial.method] for trial in trials}
    live = means.live(name, named, plan.epochs)
    found = run_study(
        plan.problem,
        trials,
        folder,
        make_trainer=means.make_trainer,
        together=means.together,
        search=search,
        report=live,
        device=means.device,
        crew=means.crew,
    )
    live.finish()
    return list(found.values())
