"""What ESGD needs so that momentum is stable: a limit, a ramp, a learning rate, side by side.

    python -m benchmarks.momentum --device cuda --data FOLDER --out records/momentum
    python -m benchmarks.momentum --out records/momentum --table

Nesterov's momentum 0.9, everything else as shipped: every learning rate with every `update_limit`
and every ramp, and the same learning rates without momentum. All trials of a problem train in one
stack; the table shows the median over seeds and how many of them failed.
"""

import argparse
import itertools
import math
import statistics
from pathlib import Path

import torch

from equilibrate.optim import ESGD
from equilibrate.paper.studies import AT_ONCE
from equilibrate.study.journal import read_records
from equilibrate.study.methods import Method
from equilibrate.study.outcome import final_error
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.stack import Stack
from equilibrate.study.study import run_study
from equilibrate.study.trial import Trial

ESGD_METHOD = Method("esgd", ESGD, {})
RATES = (0.005, 0.01, 0.02, 0.03, 0.05)
LIMITS = (None, 1.0, 0.3, 0.1, 0.03)
RAMPS = ("constant", "ramp:3000")
FAILED = 40.0  # a squared error near that of the mean image, or above: the network is dead


def settings() -> list[dict]:
    """Return the settings of every trial of one seed."""
    nesterov = {"momentum": 0.9, "nesterov": True}
    with_momentum = [
        {"lr": lr, "update_limit": limit, "lr_schedule": ramp, **nesterov}
        for lr, limit, ramp in itertools.product(RATES, LIMITS, RAMPS)
    ]
    return [{"lr": lr} for lr in RATES] + with_momentum


def train(problem: Problem, folder: Path, device: torch.device, epochs: int, seeds: int) -> None:
    """Train and record what is missing."""
    precision = "tf32" if device.type == "cuda" else "float32"
    trials = [
        Trial(problem.name, problem.fingerprint, "esgd", own, seed, problem.batch_size, epochs,
              precision)
        for seed in range(seeds) for own in settings()
    ]  # fmt: skip
    shown = [0.0]

    def report(moment) -> None:
        if moment.done - shown[0] > moment.total / 50:
            shown[0] = moment.done
            print(f"{problem.name}: {moment.done / moment.total:.0%}", flush=True)

    run_study(
        problem,
        trials,
        folder,
        make_trainer=lambda members: Stack(problem, ESGD_METHOD, members, device),
        together=lambda members: [
            members[k : k + AT_ONCE] for k in range(0, len(members), AT_ONCE)
        ],
        evaluate_every=epochs / 10,
        report=report,
        device=device,
        mixed=True,
    )


def table(folder: Path) -> list[str]:
    """Return a table of the records: limits and ramps down, learning rates across."""
    found: dict[tuple, list[float]] = {}
    for record in read_records(folder).values():
        own = record["settings"]
        row = "no momentum" if "momentum" not in own else _row(own)
        found.setdefault((row, own["lr"]), []).append(final_error(record))
    rows = dict.fromkeys(["no momentum", *(_row(own) for own in settings() if "momentum" in own)])
    lines = [
        "| | " + " | ".join(f"lr {lr:g}" for lr in RATES) + " |",
        "| --- " * (1 + len(RATES)) + "|",
    ]
    for row in rows:
        cells = [_cell(found.get((row, lr), [])) for lr in RATES]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _row(own: dict) -> str:
    limit = "no limit" if own["update_limit"] is None else f"limit {own['update_limit']:g}"
    return limit if own["lr_schedule"] == "constant" else f"{limit}, ramp"


def _cell(errors: list[float]) -> str:
    if not errors:
        return "-"
    failed = sum(error > FAILED for error in errors)
    middle = statistics.median(errors)
    shown = f"{middle:.3g}" if math.isfinite(middle) else "inf"
    return shown + (f" ({failed} of {len(errors)} failed)" if failed else "")


def main() -> None:
    """Train what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", nargs="+", default=["mnist", "curves-like"])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--table", action="store_true", help="read the records, train nothing")
    given = parser.parse_args()
    for name in given.problems:
        problem, folder = BUILT_IN[name](given.data), given.out / name
        if not given.table:
            train(problem, folder, torch.device(given.device), given.epochs, given.seeds)
        print(f"\n{problem.name}\n\n" + "\n".join(table(folder)), flush=True)


if __name__ == "__main__":
    main()
