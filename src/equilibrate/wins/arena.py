"""Where trials train: alone, each in its own process, many processes at once.

A trial that trains alone in an ordinary loop serves every optimizer alike, also those that nobody
has stacked. A process writes into a folder of its own; what it recorded is then appended to the
one journal of its task, so that records are whole or absent whenever the fight is stopped.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from equilibrate.paper.records import NotRecorded, Store
from equilibrate.rivals.soap import soap
from equilibrate.study.alone import Alone
from equilibrate.study.journal import Journal, Record, read_records
from equilibrate.study.naming import canonical, digest
from equilibrate.study.progress import Progress
from equilibrate.study.study import run_study
from equilibrate.study.trial import Trial
from equilibrate.wins.fighters import FIGHTERS, is_ours
from equilibrate.wins.tasks import Task

POINTS = 100  # of a curve


@dataclass(frozen=True)
class Job:
    """Trials of one fighter on one instance; the seed is the number of the instance."""

    task: Task
    fighter: str
    instance: int
    rates: tuple[float, ...]
    schedule: str = "cosine"

    def settings(self, rate: float) -> dict[str, Any]:
        """Return the settings of a trial with this learning rate."""
        fixed = {"lr_schedule": self.schedule, **FIGHTERS[self.fighter]().fixed}
        if is_ours(self.fighter) and self.task.growth_limit is not None:
            fixed["growth_limit"] = self.task.growth_limit
        return {**fixed, "lr": rate}

    def what(self, rate: float) -> str:
        """Name a trial by what it is, without its problem's fingerprint: drawing needs no data."""
        number, epochs = self.instance, self.task.epochs
        return canonical([self.task.name, self.fighter, self.settings(rate), number, epochs])


def _what(record: Record) -> str:
    names = ("fighter", "settings", "seed", "epochs")
    return canonical([record["task"], *(record[name] for name in names)])


@dataclass
class Arena:
    """A folder of records and the processes that fill it.

    Args:
        out: the folder; one journal a task, and `store` for what else is measured.
        device: "cpu" or "cuda".
        workers: processes at once; 1 trains in this one.
        frozen: train nothing, and raise `NotRecorded` where something is missing.
    """

    out: Path
    device: str = "cpu"
    workers: int = 1
    frozen: bool = False
    _known: dict[str, dict[str, Record]] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Where timings and pictures are recorded."""
        return Store(self.out / "records", frozen=self.frozen, device=self.device)

    def find(self, jobs: Sequence[Job]) -> list[Record]:
        """Return the records of jobs, or raise `NotRecorded`."""
        asked = [(job.task.name, job.what(rate)) for job in jobs for rate in job.rates]
        missing = [what for task, what in asked if what not in self._records(task)]
        if missing:
            raise NotRecorded(f"{len(missing)} of {len(asked)} trials are not recorded")
        return [self._records(task)[what] for task, what in asked]

    def train(self, jobs: Iterable[Job], label: str) -> None:
        """Train what is not recorded."""
        left = [job for job in map(self._missing, jobs) if job.rates]
        if self.frozen or not left:
            return
        if any(job.fighter == "soap" for job in left):
            soap()  # is its package there? Now, not after hours
        progress = Progress(label, sum(len(job.rates) for job in left))
        for job in self._trained(left):
            self._collect(job)
            progress.advance(len(job.rates), computed=True)

    def _trained(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Yield the jobs as they are done."""
        if self.workers == 1:
            for job in jobs:
                _train(job, self._scratch(job), self.device)
                yield job
            return
        context, one_thread = get_context("spawn"), partial(torch.set_num_threads, 1)
        with ProcessPoolExecutor(self.workers, context, one_thread) as pool:
            running = {pool.submit(_train, j, self._scratch(j), self.device): j for j in jobs}
            try:
                for done in as_completed(running):
                    done.result()
                    yield running[done]
            finally:  # who stops, or fails, does not wait for jobs that have not begun
                pool.shutdown(cancel_futures=True)

    def _records(self, task: str) -> dict[str, Record]:
        if task not in self._known:
            found = read_records(self._folder(task)).values()
            self._known[task] = {_what(record): record for record in found}
        return self._known[task]

    def _missing(self, job: Job) -> Job:
        recorded = self._records(job.task.name)
        rates = tuple(rate for rate in job.rates if job.what(rate) not in recorded)
        return replace(job, rates=rates)

    def _folder(self, task: str) -> Path:
        return self.out / "records" / task

    def _scratch(self, job: Job) -> Path:
        name = digest([job.task.name, job.fighter, job.instance, job.schedule])[:16]
        return self.out / "training" / name

    def _collect(self, job: Job) -> None:
        scratch = self._scratch(job)
        with Journal(self._folder(job.task.name)) as journal:
            for record in read_records(scratch).values():
                del record["checksum"]
                if record["key"] not in journal.records:
                    own = {"task": job.task.name, "fighter": job.fighter, "instance": job.instance}
                    journal.append({**record, **own})
        self._known.pop(job.task.name, None)
        shutil.rmtree(scratch)


def trainer(job: Job, rate: float, device: str) -> Alone:
    """Return the trainer of one trial, at its start."""
    problem = job.task.problem(job.instance)
    return Alone(problem, FIGHTERS[job.fighter](), [_trial(job, rate)], torch.device(device))


def _trial(job: Job, rate: float) -> Trial:
    problem = job.task.problem(job.instance)
    settings, size = job.settings(rate), problem.batch_size
    return Trial(
        problem.name, problem.fingerprint, job.fighter, settings, job.instance, size,
        job.task.epochs, job.task.precision,
    )  # fmt: skip


def _train(job: Job, folder: Path, device: str) -> None:
    problem, method = job.task.problem(job.instance), FIGHTERS[job.fighter]()
    run_study(
        problem,
        [_trial(job, rate) for rate in job.rates],
        folder,
        make_trainer=lambda trials: Alone(problem, method, trials, torch.device(device)),
        together=lambda trials: [[trial] for trial in trials],
        evaluate_every=max(1, job.task.epochs / POINTS),
        checkpoint_seconds=600.0,
        device=device,
    )
