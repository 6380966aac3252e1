"""Trials that train at once: from checkpoint to checkpoint, from evaluation to evaluation.

The life of a group, in the order that a kill anywhere leaves nothing lost and nothing twice:

    open      load the checkpoint, with the trials that were training then; or start from nothing
    train     advance in pieces; at each stop evaluate, and record and drop the trials that diverged
    save      a checkpoint now and then; always where training pauses or ends
    record    append what is finished or cut: if killed here, the checkpoint leads here again
    discard   delete the checkpoint when every trial is recorded

A trial is recorded before a checkpoint without it is written. So a checkpoint older than a record
only repeats steps, and it repeats them with the same neighbours: the numbers are the same to the
last bit.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from equilibrate.study import checkpoint
from equilibrate.study.checkpoint import Shelf
from equilibrate.study.course import Course, Trainer
from equilibrate.study.files import StudyError
from equilibrate.study.journal import Record, Recording
from equilibrate.study.naming import digest
from equilibrate.study.provenance import provenance
from equilibrate.study.trial import Trial

Curve = dict[str, list[Any]]

_PIECE_SECONDS = 0.5  # of training between two looks at the clock
_WRITING_SHARE = 0.05  # of the time, at most, for checkpoints that only evaluations ask for


@dataclass
class Group:
    """Trials that train at once. `trials` are those still training, of all the `members`."""

    members: list[Trial]
    course: Course
    journal: Recording
    shelf: Shelf = checkpoint
    trials: list[Trial] = field(init=False)
    curves: dict[str, Curve] = field(init=False)
    updates: int = 0
    seconds: float = 0.0  # of training, per trial, over all resumes
    opened: bool = False  # trained before in this run of the study
    trained_at: dict[str, Any] | None = None  # the place, where that is another process
    _trainer: Trainer | None = None
    _unsaved: bool = False
    _saved_at: float = 0.0
    _saving_took: float = 0.0
    _pace: float = 0.0  # seconds per iteration, in the last piece

    def __post_init__(self) -> None:
        self.trials = list(self.members)
        self.curves = {trial.key: _empty_curve() for trial in self.members}
        name = digest([trial.key for trial in self.members])[:16]
        self.path = self.journal.folder / "checkpoints" / f"{name}.pt"

    def train_to(self, updates: int) -> None:
        """Train until `updates` are made, evaluated and saved; at once where they were before."""
        for _ in self.pieces(updates):
            pass

    def pieces(self, updates: int) -> Iterator[None]:
        """Train as `train_to` does, with a pause after every piece of training."""
        trainer = self._open()
        while self.trials:
            evaluated = self._evaluate_at_stop(trainer, updates)
            if self.trials and self._save_is_due(evaluated):
                self._save(trainer)
            if trainer.updates >= updates:
                break
            if self.trials:
                self._advance(trainer, updates)
            yield
        if self.trials:
            self._save(trainer)
        else:
            self._discard()

    def drop(self, keys: Sequence[str], status: str, rung: int | None = None) -> None:
        """Record these trials, end their training; the others go on."""
        gone = [trial for trial in self.trials if trial.key in set(keys)]
        for trial in gone:
            if trial.key not in self.journal.records:
                self.journal.append(self._record(trial, status, rung))
                self.course.diverged[trial.method] += status == "diverged"
            self.course.progress[trial.key] = rung or self.course.epochs
        self.trials = [trial for trial in self.trials if trial not in gone]
        if self._trainer is not None and self.trials:
            self._keep(self._trainer)
        if not self.trials:
            self._discard()

    def close(self) -> None:
        """Let go of the trainer's memory; the checkpoint takes its place."""
        self._trainer = None

    def _open(self) -> Trainer:
        if self._trainer is None:
            self._trainer = self._restored() or self._started()
            self.opened = True
            self._keep(self._trainer)
            self._saved_at = time.perf_counter()
            self._count(self._trainer)
        return self._trainer

    def _started(self) -> Trainer:
        if self.opened:  # only from the first rung on are the neighbours those of the first time
            raise StudyError(
                f"{self.path}: the checkpoint was damaged while the study ran. Run the same "
                f"command again: what was recorded is kept, and these trials start over"
            )
        self._unsaved = True
        return self.course.make_trainer(list(self.members))

    def _restored(self) -> Trainer | None:
        state = self.shelf.load(self.path)
        if state is None or not self._holds_what_is_missing(state["keys"]):
            return None
        by_key = {trial.key: trial for trial in self.members}
        trainer = self.course.make_trainer([by_key[key] for key in state["keys"]])
        try:
            trainer.load_state_dict(state["trainer"])
        except torch.OutOfMemoryError:
            raise  # nothing is wrong with the checkpoint
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            self.shelf.refuse(self.path, f"it is of another version ({error})")
            return None
        self.curves.update(state["curves"])
        self.seconds = state["seconds"]
        self.trials = [trial for trial in self.trials if trial.key in state["keys"]]
        self._unsaved = False
        return trainer

    def _holds_what_is_missing(self, keys: list[str]) -> bool:
        """A trial dropped before the checkpoint, its record damaged since, needs a new start."""
        missing = [trial for trial in self.trials if trial.key not in self.journal.records]
        return all(trial.key in keys for trial in missing)

    def _keep(self, trainer: Trainer) -> None:
        keys = {trial.key for trial in self.trials}
        rows = [row for row, trial in enumerate(trainer.trials) if trial.key in keys]
        if len(rows) < len(trainer.trials):
            trainer.keep(rows)
            self._unsaved = True

    def _advance(self, trainer: Trainer, target: int) -> None:
        every, before = self.course.evaluate_every, trainer.updates
        stop = min(target, (before // every + 1) * every)
        patience = min(_PIECE_SECONDS, self.course.checkpoint_seconds)
        piece = int(patience / self._pace) if self._pace else 1
        iterations = max(1, min(stop - before, piece))
        started = time.perf_counter()
        trainer.advance(iterations)
        spent = time.perf_counter() - started
        self._pace = spent / iterations
        self.seconds += spent / len(self.trials)
        self._unsaved = True
        self._count(trainer, iterations)

    def _evaluate_at_stop(self, trainer: Trainer, target: int) -> bool:
        """Add a point to the curves where one is due; record and drop the trials that diverged."""
        now = trainer.updates
        due = now == target or now % self.course.evaluate_every == 0
        if not due or now in self.curves[self.trials[0].key]["updates"][-1:]:
            return False
        diverged = []
        for trial, error in zip(self.trials, trainer.errors(), strict=True):
            if math.isfinite(error):
                self._add_point(self.curves[trial.key], now, error)
            else:
                diverged.append(trial.key)
        self._unsaved = True
        if diverged:
            self.drop(diverged, "diverged")
        self._count(trainer)
        return True

    def _add_point(self, curve: Curve, updates: int, error: float) -> None:
        point = (self.course.epoch(updates), updates, error, self.seconds)
        for values, value in zip(curve.values(), point, strict=True):
            values.append(value)

    def _save_is_due(self, evaluated: bool) -> bool:
        waited = time.perf_counter() - self._saved_at
        cheap = waited * _WRITING_SHARE >= self._saving_took
        return waited >= self.course.checkpoint_seconds or (evaluated and cheap)

    def _save(self, trainer: Trainer) -> None:
        if not self._unsaved:
            return
        started = time.perf_counter()
        keys = [trial.key for trial in self.trials]
        curves = {key: self.curves[key] for key in keys}
        state = {"trainer": trainer.state_dict(), "keys": keys, "curves": curves}
        ended = [self._record(trial, "cut", None) for trial in self.trials]  # for `conclude`
        self.shelf.save(self.path, {**state, "seconds": self.seconds, "records": ended})
        self._saved_at = time.perf_counter()
        self._saving_took, self._unsaved = self._saved_at - started, False

    def _discard(self) -> None:
        self.close()
        self.shelf.discard(self.path)

    def _record(self, trial: Trial, status: str, rung: int | None) -> Record:
        errors = self.curves[trial.key]["error"]
        return {
            **trial.describe(),
            "status": status,
            "rung": rung,
            "curve": self.curves[trial.key],
            "final_error": errors[-1] if errors else None,
            "together": len(self.members),
            "mixed": len({member.method for member in self.members}) > 1,
            "provenance": provenance(
                trial.seed, self.seconds, device=self.course.device, where=self.trained_at
            ),
        }

    def _count(self, trainer: Trainer, iterations: int = 0) -> None:
        self.updates = trainer.updates
        course, epoch = self.course, self.course.epoch(self.updates)
        new = [trial for trial in self.trials if trial.key not in self.journal.records]
        course.progress.update({trial.key: epoch for trial in new})
        course.trained += len(new) * iterations / course.updates_per_epoch
        last = [self.curves[trial.key]["error"][-1:] for trial in self.trials]
        best = min((error for errors in last for error in errors), default=None)
        course.tell(self.members[0].method, len(self.trials), epoch, best)


def _empty_curve() -> Curve:
    return {"epoch": [], "updates": [], "error": [], "seconds": []}
