"""Records on disk: what was computed, under which settings, by what; drawing needs nothing else.

A record is one JSON file named by the hash of (figure, settings). It is written to a temporary file
and renamed, so that a kill leaves a whole record or none; it carries a checksum of itself, so that
a file cut off or changed later is noticed, named, and computed again.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from equilibrate.study.crew import Crew
from equilibrate.study.naming import canonical, digest
from equilibrate.study.provenance import provenance

Data = dict[str, Any]

AT_ONCE = 64


class NotRecorded(LookupError):
    """Raised by a frozen store that is asked for something it does not hold."""


class DamagedRecord(ValueError):
    """Raised where a record's file is cut off, corrupt or belongs to other settings."""


def read(path: Path, figure: str, settings: Mapping[str, Any]) -> Data:
    """Return the record in a file, or raise `DamagedRecord` with the file's name and the reason."""
    try:
        record: Data = json.loads(path.read_bytes())
        checksum = record.pop("checksum")
        complete = {"figure", "settings", "data", "provenance"} <= record.keys()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedRecord(f"{path}: cut off or not a record ({error})") from error
    if not complete or checksum != digest(record):
        raise DamagedRecord(f"{path}: its checksum does not fit its content")
    if [record["figure"], record["settings"]] != json.loads(canonical([figure, settings])):
        raise DamagedRecord(f"{path}: it belongs to other settings")
    return record


def write(path: Path, record: Data) -> None:
    """Write a record whole or not at all: a temporary file beside it, synchronised, renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.stem}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(canonical({**record, "checksum": digest(record)}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@dataclass
class Store:
    """A folder of records; `frozen` forbids computing, `damaged` lists the files that were bad."""

    folder: Path
    frozen: bool = False
    damaged: list[str] = field(default_factory=list)
    device: str = "cpu"  # that studies train on
    data: Path | None = None  # folder of the data files
    at_once: int = AT_ONCE  # trials of a study in one stack, at most
    crew: Crew | None = None  # who trains studies; None is this process
    timed: bool = True  # whether times that are missing are measured
    ahead: tuple[str, ...] = ()  # arms that train with all seeds before their winner is known

    def for_times(self) -> "Store":
        """Return the store that times come from: a frozen one where they are left for later."""
        return self if self.timed else replace(self, frozen=True)

    def path(self, figure: str, settings: Mapping[str, Any]) -> Path:
        """Return the file of a record, named by the hash of what it depends on."""
        return self.folder / f"{figure}-{digest([figure, settings])[:16]}.json"

    def find(self, figure: str, settings: Mapping[str, Any]) -> Data | None:
        """Return a sound record, or None where there is none; a damaged one is named on stderr."""
        path = self.path(figure, settings)
        if not path.exists():
            return None
        try:
            return read(path, figure, settings)
        except DamagedRecord as error:
            self.damaged.append(path.name)
            print(f"\ndamaged record, not used: {error}", file=sys.stderr)
            return None

    def get(
        self, figure: str, settings: Mapping[str, Any], compute: Callable[[], Data]
    ) -> tuple[Data, bool]:
        """Return a record and whether it was computed now; computing writes it."""
        found = self.find(figure, settings)
        if found is not None:
            return found, False
        if self.frozen:
            raise NotRecorded(f"{figure}: no sound record for {canonical(settings)}")
        started = time.perf_counter()
        data = compute()
        spent = time.perf_counter() - started
        made = provenance(settings.get("seed"), spent, device=self.device)
        record = {"figure": figure, "settings": dict(settings), "data": data, "provenance": made}
        write(self.path(figure, settings), record)
        return json.loads(canonical(record)), True
