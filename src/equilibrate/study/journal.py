"""Records of trials: an append-only file, one JSON object a line, that survives a kill.

`FOLDER/records.jsonl` is read with `pandas.read_json(path, lines=True)`. Every line carries a
checksum of itself. A line is written by one call and synchronised before the study goes on, so a
kill leaves at most one unfinished line, the last; it is cut off when the journal is opened again.
A line that was damaged later is named, kept in `FOLDER/records.damaged`, and computed again.
Published records are packed, `FOLDER/records.jsonl.gz`: read as they are, unpacked to go on.
"""

import contextlib
import fcntl
import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from equilibrate.study.files import (
    StudyError,
    append_synced,
    explained,
    make_folder,
    say,
    sync_folder,
    write_all,
    write_whole,
)
from equilibrate.study.naming import digest

Record = dict[str, Any]

RECORDS = "records.jsonl"
PACKED = "records.jsonl.gz"
DAMAGED = "records.damaged"
LOCK = "records.lock"


class DamagedLine(ValueError):
    """Raised where a line of a journal is not a sound record."""


@dataclass
class Contents:
    """What a journal's bytes hold: sound records by key, and what is wrong with the rest."""

    records: dict[str, Record] = field(default_factory=dict)
    sound: list[bytes] = field(default_factory=list)
    damaged: list[tuple[int, str, bytes]] = field(default_factory=list)  # line, reason, bytes
    unfinished: bytes = b""

    def clean(self) -> bytes:
        """Return the bytes that the journal should hold."""
        return b"".join(line + b"\n" for line in self.sound)


def read_records(folder: Path | str) -> dict[str, Record]:
    """Return the sound records of a study by their keys; a study may be running meanwhile.

    Example:
        >>> read_records("no/such/folder")
        {}
    """
    path = Path(folder) / RECORDS
    packed = path.with_name(PACKED)
    path = packed if packed.exists() and not path.exists() else path
    contents = _contents(path)
    _name_damage(path, contents, "not used")
    return contents.records


class Recording(Protocol):
    """What a group needs of a journal."""

    folder: Path
    records: dict[str, Record]

    def append(self, record: Mapping[str, Any], /) -> Record:
        """Write one record; return it as it will be read."""


class Journal:
    """The records of one folder, open for writing by this process alone.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Journal(folder) as journal:
        ...     _ = journal.append({"key": "0a1b", "final_error": 0.25})
        ...     "0a1b" in journal.records
        True
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.path = self.folder / RECORDS
        with explained(self.folder), contextlib.ExitStack() as undo:
            make_folder(self.folder)
            self._lock = _locked(self.folder / LOCK)
            undo.callback(os.close, self._lock)
            _unpack(self.path)
            self.records = self._repaired()
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            sync_folder(self.folder)
            undo.pop_all()

    def append(self, record: Mapping[str, Any]) -> Record:
        """Write one record, whole and synchronised; return it as it will be read.

        Raises:
            ValueError: its key is recorded already, or a number in it is not finite.
            StudyError: the disk refused; the file is as it was before.
        """
        if record["key"] in self.records:
            raise ValueError(f"trial {record['key']} is recorded already in {self.path}")
        line = as_line(record)
        length = os.fstat(self._descriptor).st_size
        with explained(self.path):
            try:
                write_all(self._descriptor, line)
                os.fsync(self._descriptor)
            except OSError:
                self._cut_back(length)
                raise
        stored: Record = json.loads(line)
        self.records[stored["key"]] = stored
        return stored

    def close(self) -> None:
        """Close the file and let another process write."""
        os.close(self._descriptor)
        os.close(self._lock)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _repaired(self) -> dict[str, Record]:
        contents = _contents(self.path)
        _name_damage(self.path, contents, f"kept in {DAMAGED}, to be computed again")
        if contents.unfinished:
            say(f"{self.path}: the last line was unfinished (a kill during a write) and is cut off")
        if contents.damaged:
            lost = b"".join(line + b"\n" for _, _, line in contents.damaged)
            append_synced(self.folder / DAMAGED, lost)
        if self.path.exists() and contents.clean() != self.path.read_bytes():
            write_whole(self.path, contents.clean())
        return contents.records

    def _cut_back(self, length: int) -> None:
        # Where even this is refused, the next opening cuts the unfinished line off.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, length)
            os.fsync(self._descriptor)


def as_line(record: Mapping[str, Any]) -> bytes:
    """Return the line of a record, its checksum included."""
    whole = {**record, "checksum": digest(record)}
    try:
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise ValueError(f"trial {record['key']}: a record holds finite numbers only") from error
    return text.encode() + b"\n"


def _unpack(path: Path) -> None:
    """Make a journal of packed records that are alone."""
    packed = path.with_name(PACKED)
    if packed.exists() and not path.exists():
        write_whole(path, gzip.decompress(packed.read_bytes()))


def _contents(path: Path) -> Contents:
    with explained(path):
        data = path.read_bytes() if path.exists() else b""
    if path.name == PACKED:
        data = gzip.decompress(data)
    contents = Contents()
    *lines, last = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        _take(contents, number, line)
    if last:  # no newline: cut off in a write, or whole but for it
        try:
            _take(contents, len(lines) + 1, last, strict=True)
        except DamagedLine:
            contents.unfinished = last
    return contents


def _take(contents: Contents, number: int, line: bytes, *, strict: bool = False) -> None:
    if not line.strip():
        return
    try:
        record = _sound(line)
        if record["key"] in contents.records:
            raise DamagedLine(f"trial {record['key']} is recorded on an earlier line")
    except DamagedLine as error:
        if strict:
            raise
        contents.damaged.append((number, str(error), line))
    else:
        contents.records[record["key"]] = record
        contents.sound.append(line)


def _sound(line: bytes) -> Record:
    try:
        record: Record = json.loads(line)
        content = {name: value for name, value in record.items() if name != "checksum"}
        checksum, _ = record["checksum"], record["key"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedLine(f"not a record ({error})") from error
    if checksum != digest(content):
        raise DamagedLine("its checksum does not fit its content")
    return record


def _name_damage(path: Path, contents: Contents, fate: str) -> None:
    for number, reason, _ in contents.damaged:
        say(f"{path}, line {number}: damaged record, {fate}: {reason}")


def _locked(path: Path) -> int:
    """Open the lock file and hold it; the operating system lets go when the process ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StudyError(
            f"another process is writing in {path.parent}; wait until it is done, stop it, or "
            f"choose another folder"
        ) from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
