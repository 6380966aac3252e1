"""Ending a study for good where it was stopped: what the checkpoints know becomes records.

    python -m equilibrate.study.conclude FOLDER

A study that was stopped goes on when the same command is run again. Where it must not, because the
time on a machine is spent, say, this records every unfinished trial as "cut", with its curve as far
as it came. The checkpoints are then deleted.
"""

import argparse
import sys
from pathlib import Path

from equilibrate.study import checkpoint
from equilibrate.study.files import StudyError
from equilibrate.study.journal import Journal, Record


def conclude(folder: Path | str) -> list[Record]:
    """Record the unfinished trials of a study as cut; return their records.

    Raises:
        StudyError: there is no study in the folder, or it is running.
    """
    folder = Path(folder)
    paths = sorted((folder / "checkpoints").glob("*.pt"))
    if not paths:
        raise StudyError(f"{folder}: no checkpoint of an unfinished study; nothing to conclude")
    ended: list[Record] = []
    with Journal(folder) as journal:
        for path in paths:
            state = checkpoint.load(path)
            if state is None:  # damaged: named and put aside
                continue
            if "records" not in state:
                raise StudyError(f"{path}: of an earlier version, which cannot be concluded")
            left = [r for r in state["records"] if r["key"] not in journal.records]
            for record in left:
                journal.append(record)
            ended += left
            checkpoint.discard(path)
    return ended


def main() -> None:
    """Conclude the study in the folder that is named on the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m equilibrate.study.conclude",
        description="End a stopped study for good: record its unfinished trials as cut.",
    )
    parser.add_argument("folder", type=Path, help="of the study: the one that holds records.jsonl")
    try:
        for record in conclude(parser.parse_args().folder):
            last, name = record["curve"]["epoch"][-1], f"{record['method']} {record['key']}"
            print(f"{name}: cut at epoch {last:g} of {record['epochs']}")
    except StudyError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
