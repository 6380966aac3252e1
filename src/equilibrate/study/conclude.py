"""Ending a study for good where it was stopped: what the checkpoints know becomes records.

    python -m equilibrate.study.conclude FOLDER
    python -m equilibrate.study.conclude FOLDER --so-far FILE

A study that was stopped goes on when the same command is run again. Where it must not, because the
time on a machine is spent, say, this records every unfinished trial as "cut", with its curve as far
as it came. The checkpoints are then deleted.

`--so-far` writes the same lines to a file and leaves the study alone, which may be running: to
carry the curves, a few kilobytes, away from a machine that may be lost with its checkpoints.
Appended to the `records.jsonl` of a copy of the folder, they are its records.
"""

import argparse
import sys
from pathlib import Path

from equilibrate.study import checkpoint
from equilibrate.study.files import StudyError, write_whole
from equilibrate.study.journal import Journal, Record, as_line, read_records


def conclude(folder: Path | str) -> list[Record]:
    """Record the unfinished trials of a study as cut; return their records.

    Raises:
        StudyError: there is no study in the folder, or it is running.
    """
    folder = Path(folder)
    paths = _checkpoints(folder)
    ended: list[Record] = []
    with Journal(folder) as journal:
        for path in paths:
            state = checkpoint.load(path)
            if state is None:  # damaged: named and put aside
                continue
            left = [r for r in _cut(path, state) if r["key"] not in journal.records]
            for record in left:
                journal.append(record)
            ended += left
            checkpoint.discard(path)
    return ended


def so_far(folder: Path | str) -> list[Record]:
    """Return the unfinished trials of a study as they would be concluded now; change nothing.

    Raises:
        StudyError: there is no study in the folder, or a checkpoint is damaged.
    """
    folder = Path(folder)
    found: list[Record] = []
    for path in _checkpoints(folder):
        data = checkpoint.read(path)
        if data is None:  # its trials have ended meanwhile: they are recorded
            continue
        try:
            found += _cut(path, checkpoint.unpacked(data))
        except checkpoint.Unsound as error:
            raise StudyError(f"{path}: the checkpoint cannot be read: {error}") from error
    recorded = read_records(folder)
    return [record for record in found if record["key"] not in recorded]


def _checkpoints(folder: Path) -> list[Path]:
    paths = sorted((folder / "checkpoints").glob("*.pt"))
    if not paths:
        raise StudyError(f"{folder}: no checkpoint of an unfinished study; nothing to conclude")
    return paths


def _cut(path: Path, state: checkpoint.State) -> list[Record]:
    """Return the records that a checkpoint holds of its trials, as if they ended there."""
    if "records" not in state:
        raise StudyError(f"{path}: of an earlier version, which cannot be concluded")
    records: list[Record] = state["records"]
    return records


def main() -> None:
    """Conclude the study in the folder that is named on the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m equilibrate.study.conclude",
        description="End a stopped study for good: record its unfinished trials as cut.",
    )
    parser.add_argument("folder", type=Path, help="of the study: the one that holds records.jsonl")
    parser.add_argument(
        "--so-far", type=Path, metavar="FILE",
        help="write these records to a file instead, and leave the study, which may be running",
    )  # fmt: skip
    given = parser.parse_args()
    try:
        ended = conclude(given.folder) if given.so_far is None else so_far(given.folder)
        if given.so_far is not None:
            write_whole(given.so_far, b"".join(map(as_line, ended)))
        for record in ended:
            name, last = f"{record['method']} {record['key']}", record["curve"]["epoch"][-1:]
            at = f"at epoch {last[0]:g} of {record['epochs']}" if last else "before its first point"
            print(f"{name}: {'cut' if given.so_far is None else 'trained so far,'} {at}")
    except StudyError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
