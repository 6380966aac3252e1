"""The worker's side: a group trains here as it would at home, and what it writes is sent.

Nothing here needs Ray: an errand is a generator of messages.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from equilibrate.study import checkpoint, files
from equilibrate.study.cluster.messages import (
    Arrived,
    Errand,
    Message,
    Recorded,
    Refused,
    Said,
    Saved,
)
from equilibrate.study.course import Course, Moment
from equilibrate.study.files import StudyError
from equilibrate.study.group import Group
from equilibrate.study.journal import Record
from equilibrate.study.provenance import place, versions

_TELL_SECONDS = 0.2  # between two moments, which only a progress display reads


class Outbox:
    """Stands for the journal and the shelf of checkpoints; both are in another process."""

    def __init__(self, errand: Errand) -> None:
        self.folder = Path(errand.folder)
        self.records: dict[str, Record] = {key: {} for key in errand.recorded}
        self.messages: list[Message] = []
        self._checkpoint = errand.checkpoint
        self._heard = len(files.SAID)
        self._told = 0.0

    def append(self, record: Mapping[str, Any]) -> Record:
        """Send a record."""
        self.records[record["key"]] = dict(record)
        self.messages.append(Recorded(dict(record)))
        return dict(record)

    def save(self, path: Path, state: checkpoint.State) -> None:
        """Send a checkpoint."""
        self.messages.append(Saved(checkpoint.packed(state)))

    def load(self, path: Path) -> checkpoint.State | None:
        """Return the state that came with the errand."""
        if self._checkpoint is None:
            return None
        try:
            return checkpoint.unpacked(self._checkpoint)
        except checkpoint.Unsound as error:
            self.refuse(path, str(error))
            return None

    def refuse(self, path: Path, reason: str) -> None:
        """Send word of a checkpoint that cannot be used."""
        self.messages.append(Refused(reason))

    def discard(self, path: Path) -> None:
        """Do nothing: who hears that no trial is left deletes the checkpoint."""

    def report(self, moment: Moment) -> None:
        """Send a moment now and then."""
        now = time.perf_counter()
        if now - self._told >= _TELL_SECONDS:
            self._told = now
            self.messages.append(moment)

    def taken(self) -> list[Message]:
        """Return what is to be sent, each message once."""
        said, self._heard = files.SAID[self._heard :], len(files.SAID)
        messages, self.messages = [*map(Said, said), *self.messages], []
        return messages


def run(errand: Errand, course: Course) -> Iterator[Message]:
    """Train a group, and yield a message for everything that must be known at home."""
    _check_versions(errand.versions)
    torch.set_num_threads(errand.threads)
    outbox = Outbox(errand)
    group = _group(errand, course, outbox)
    for _ in chain(group.pieces(errand.updates), [None]):
        # Not `yield from`: Ray sends values into a generator, and a list takes none.
        for message in outbox.taken():  # noqa: UP028
            yield message
    keys = [trial.key for trial in group.trials]
    curves = {key: group.curves[key] for key in keys}
    yield Arrived(keys, curves, group.updates, group.seconds, place(course.device))


def _group(errand: Errand, course: Course, outbox: Outbox) -> Group:
    keys = [trial.key for trial in errand.members]
    own = replace(
        course,
        report=outbox.report,
        progress=dict.fromkeys(keys, 0.0),
        diverged=Counter(),
        trained=0.0,
    )
    group = Group(errand.members, own, outbox, shelf=outbox, opened=errand.opened)
    group.trials = [trial for trial in errand.members if trial.key in errand.training]
    return group


def _check_versions(wanted: dict[str, str]) -> None:
    """Refuse to mix versions: their numbers differ."""
    here = versions()
    for name, version in wanted.items():
        if here[name] != version:
            raise StudyError(
                f"a worker of the cluster has {name} {here[name]}, this process has {version}; "
                f"install the same version on every machine, then run the same command again"
            )
