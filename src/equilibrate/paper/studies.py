"""The studies behind Figures 3 and 4: run where a device is at hand, else read from their records.

A study lies in its own folder beside the figures' records. On a GPU all its trials train in one
mixed stack: that is what it does best.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from equilibrate.paper.records import AT_ONCE, Data, NotRecorded, Store
from equilibrate.study.alone import Alone
from equilibrate.study.course import Moment, Trainer
from equilibrate.study.files import StudyError
from equilibrate.study.journal import read_records
from equilibrate.study.methods import Method
from equilibrate.study.naming import canonical
from equilibrate.study.problem import Problem
from equilibrate.study.progress import Progress
from equilibrate.study.search import Search, random_search
from equilibrate.study.stack import Stack
from equilibrate.study.study import run_study
from equilibrate.study.trial import Trial


def study_folder(store: Store, name: str) -> Path:
    """Return where the records of a study lie."""
    return store.folder / name


def recorded(store: Store, name: str, trials: Sequence[Trial]) -> list[Data]:
    """Return the records of trials, in their order, or raise `NotRecorded`.

    The problem's fingerprint is not asked for: redrawing needs no data.
    """
    folder = study_folder(store, name)
    found = {_what(record): record for record in read_records(folder).values()}
    missing = [trial for trial in trials if _what(trial.describe()) not in found]
    if missing:
        raise NotRecorded(f"{name}: {len(missing)} of {len(trials)} trials are not recorded")
    return [found[_what(trial.describe())] for trial in trials]


def known(store: Store, name: str, trials: Sequence[Trial]) -> list[Trial]:
    """Return those of the trials that are recorded."""
    found = {_what(record) for record in read_records(study_folder(store, name)).values()}
    return [trial for trial in trials if _what(trial.describe()) in found]


def _what(described: Data) -> str:
    names = ("problem", "method", "settings", "seed", "batch_size", "epochs", "precision")
    return canonical([described[name] for name in names])


def require_device(name: str, precision: str, device: str) -> None:
    """Raise StudyError where a full study is asked for and no GPU named."""
    if device == "cpu" and precision == "tf32":
        raise StudyError(
            f"{name} in full needs a GPU: add --device cuda, or --quick for a CPU. Records that "
            f"are there are drawn where it is not named."
        )


def train(
    store: Store,
    name: str,
    problem: Problem,
    methods: Mapping[str, Method],
    trials: Sequence[Trial],
    progress: Progress,
    *,
    every: float | None = None,
    search: Search | None = None,
    at_once: int = AT_ONCE,
) -> list[Data]:
    """Return the records of trials of one length, training those that are missing.

    They are evaluated `every` so many epochs; None is about a hundred times. A search tells how far
    each trains; None trains all to the end. One at a time, the optimizer itself moves a trial.
    """
    if store.frozen:
        return recorded(store, name, trials)
    require_device(name, trials[0].precision, store.device)
    device, width = torch.device(store.device), min(at_once, store.at_once)
    counted = _Counted(progress)

    def make_trainer(members: list[Trial]) -> Trainer:
        if width == 1:
            return Alone(problem, methods[members[0].method], members, device)
        return Stack(problem, methods, members, device)

    def together(members: list[Trial]) -> list[list[Trial]]:
        return [members[k : k + width] for k in range(0, len(members), width)]

    found = run_study(
        problem,
        trials,
        study_folder(store, name),
        make_trainer=make_trainer,
        together=together,
        search=search,
        evaluate_every=every,
        report=counted.report,
        device=device,
        mixed=width > 1,
        crew=store.crew,
    )
    search = search or random_search(trials[0].epochs)
    counted.all_of(search.work_of(trial.method for trial in trials))
    return [found[trial.key] for trial in trials]


@dataclass
class _Counted:
    """The work of one study, counted as a part of a figure's."""

    progress: Progress
    done: float = 0.0
    trained: float = 0.0

    def report(self, moment: Moment) -> None:
        """Count what is new: what was trained here, and what was found recorded."""
        gained = moment.done - self.done
        if gained > 0:  # less is done than before where a worker was lost
            trained = min(gained, max(0.0, moment.trained - self.trained))
            self.done, self.trained = moment.done, moment.trained
            self._advance(trained, computed=True)
            self._advance(gained - trained, computed=False)

    def all_of(self, total: float) -> None:
        """Count what nobody reported: a study of which all is recorded has nothing to tell."""
        self._advance(total - self.done, computed=False)

    def _advance(self, amount: float, *, computed: bool) -> None:
        if amount > 0:
            self.progress.advance(amount, computed=computed)
