"""The settings of the study `damped` that were trained with several seeds, along their runs.

    python -m benchmarks.damped_seeds --records results/records

The study's own table has the winner at seed 0. A setting that is ahead there may die at another
seed: these are all that were trained with more than one, with the median, the least and the
greatest error after so many updates.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from equilibrate.paper.arm_records import by_settings, error_at, told
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS
from equilibrate.study.journal import Record, read_records
from equilibrate.study.outcome import Spread

UPDATES = (30_000, 100_000, 200_000, 400_000, 750_000)
TASKS = ("mnist", "curves-like")


def table(folder: Path) -> list[str]:
    """Return the table of one task, the lowest median at the end first."""
    alike = by_settings(read_records(folder).values())
    several = [own for own in alike if len(own) > 1]  # no seed has two of one length
    several.sort(key=lambda own: _over_seeds(own, UPDATES[-1]).median)
    head = ["| | seeds | " + " | ".join(f"{n:,}" for n in UPDATES) + " |"]
    return [*head, "| --- " * (2 + len(UPDATES)) + "|", *map(_row, several)]


def _row(records: Sequence[Record]) -> str:
    name = f"{MOMENTUM_ARMS[records[0]['method']].label}, {_settings(records[0]['settings'])}"
    cells = [told(_over_seeds(records, updates)) for updates in UPDATES]
    return f"| {name} | {len(records)} | " + " | ".join(cells) + " |"


def _settings(own: Mapping[str, Any]) -> str:
    rises = "momentum" in own  # Adam's does not
    shown = [
        f"lr {own['lr']:g}",
        f"to {own['momentum']:g}" if rises else f"beta1 {own['betas'][0]:g}",
    ]
    shown += [f"damping {own['damping']:g}"] if "damping" in own else []
    return ", ".join(shown + (["mean_floor"] if own.get("mean_floor") else []))


def _over_seeds(records: Sequence[Record], updates: int) -> Spread:
    return Spread.of([error_at(record, updates / _per_epoch(record)) for record in records])


def _per_epoch(record: Record) -> float:
    curve = record["curve"]
    return float(curve["updates"][-1] / curve["epoch"][-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=Path("results/records"))
    given = parser.parse_args()
    for task in TASKS:
        print(f"\n{task}\n\n" + "\n".join(table(given.records / f"damped-{task}")))


if __name__ == "__main__":
    main()
