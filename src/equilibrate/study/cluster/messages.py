"""What a worker tells the process that owns the study, in the order in which it happened.

Messages are handled in that order, and none after the first that is lost. Therefore a record
arrives before a checkpoint without its trial, as on one machine (`group.py`).
"""

from dataclasses import dataclass
from typing import Any

from equilibrate.study.course import Moment
from equilibrate.study.group import Curve
from equilibrate.study.journal import Record
from equilibrate.study.trial import Trial


@dataclass(frozen=True)
class Errand:
    """What a worker is asked to do: train a group to a number of updates."""

    members: list[Trial]
    training: list[str]  # keys of the members that train on
    recorded: list[str]  # keys of the members that have a record
    opened: bool
    checkpoint: bytes | None
    updates: int
    folder: str  # of the study, to be named in errors; the worker does not write there
    versions: dict[str, str]
    threads: int


@dataclass(frozen=True)
class Saved:
    """A checkpoint, to be written."""

    data: bytes


@dataclass(frozen=True)
class Recorded:
    """A trial that diverged, to be appended to the journal."""

    record: Record


@dataclass(frozen=True)
class Refused:
    """The checkpoint of the errand cannot be used."""

    reason: str


@dataclass(frozen=True)
class Said:
    """A sentence for the user."""

    text: str


@dataclass(frozen=True)
class Arrived:
    """The end of an errand: where the group stands now, and where it was trained."""

    training: list[str]
    curves: dict[str, Curve]
    updates: int
    seconds: float
    place: dict[str, Any]


Message = Saved | Recorded | Refused | Said | Moment | Arrived


class Lost(RuntimeError):
    """Raised where a worker will send nothing more; the text is what the cluster says of it."""
