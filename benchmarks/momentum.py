"""What ESGD needs so that momentum is stable: a limit, a ramp, a learning rate, side by side.

    python -m benchmarks.momentum --device cuda --data FOLDER --out RECORDS
    python -m benchmarks.momentum --problems image-64-relu --rates 0.02 0.05 0.1 0.2 --out RECORDS
    python -m benchmarks.momentum --out RECORDS --table
    python -m benchmarks.momentum --growth --out RECORDS
    python -m benchmarks.momentum --limits --rising 0.99 --rates 0.005 0.01 0.02 --out RECORDS

Nesterov's momentum 0.9 without `growth_limit`, everything else as shipped: every learning rate with
every `update_limit` and every ramp, and the same learning rates without momentum. `--growth` adds
the rows of the shipped `growth_limit`; `--rising` those of a momentum that rises to a number on
Sutskever's schedule, else as shipped. No limit named leaves these alone. All trials of a problem
train in one stack; the table shows the median over seeds and how many of them failed.
"""

import argparse
import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import one_stack
from benchmarks.one_stack import precision_of
from equilibrate.optim import ESGD
from equilibrate.study.journal import read_records
from equilibrate.study.methods import Method
from equilibrate.study.outcome import Record, final_error
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.stacked_rules import complete
from equilibrate.study.trial import Trial

ESGD_METHOD = Method("esgd", ESGD, {})
RATES = (0.005, 0.01, 0.02, 0.03, 0.05)
LIMITS = (None, 1.0, 0.3, 0.1, 0.03)
RAMPS = ("constant", "ramp:3000")
# A dead network's output is constant: its least error, where the data are known, else a share of
# the error at the start.
CONSTANT = {"MNIST": 52.7, "CURVES-like": 16.8}
FAILED = 0.2


def settings(
    rates: Sequence[float],
    *,
    growth: bool = False,
    limits: Sequence[float | None] = LIMITS,
    ramps: Sequence[str] = RAMPS,
    rising: Sequence[float] = (),
) -> list[dict]:
    """Return the settings of every trial of one seed; with `growth` also those of the default."""
    nesterov = {"momentum": 0.9, "nesterov": True}
    on_schedule = {"momentum_schedule": "sutskever", "nesterov": True}
    grows = [None, complete(ESGD, {})["growth_limit"]] if growth else [None]
    with_momentum = [
        {"lr": lr, "update_limit": limit, "growth_limit": grow, "lr_schedule": ramp, **nesterov}
        for grow, lr, limit, ramp in itertools.product(grows, rates, limits, ramps)
    ]
    tops = itertools.product(rising, rates)
    up = [{"lr": lr, "momentum": top, **on_schedule} for top, lr in tops]
    return [{"lr": lr} for lr in rates if with_momentum or not up] + with_momentum + up


def chosen(given: argparse.Namespace) -> dict:
    """Return which limits and ramps were asked for."""
    limits = [None if text == "none" else float(text) for text in given.limits]
    also = {"growth": given.growth, "rising": given.rising}
    return {"limits": limits, "ramps": given.ramps, **also}


def train(problem: Problem, folder: Path, given: argparse.Namespace) -> None:
    """Train and record what is missing."""
    device, epochs = torch.device(given.device), given.epochs
    trials = [
        Trial(problem.name, problem.fingerprint, "esgd", own, seed, problem.batch_size, epochs,
              precision_of(device))
        for seed in range(given.seeds) for own in settings(given.rates, **chosen(given))
    ]  # fmt: skip
    one_stack.train(problem, ESGD_METHOD, trials, folder, device, epochs / 10)


def table(folder: Path, rates: Sequence[float], **asked: Any) -> list[str]:
    """Return a table of the records: limits and ramps down, learning rates across."""
    found: dict[tuple, list[tuple[float, bool]]] = {}
    for record in read_records(folder).values():
        own = record["settings"]
        row = "no momentum" if "momentum" not in own else _row(own)
        found.setdefault((row, own["lr"]), []).append((final_error(record), _failed(record)))
    listed = settings(rates, **asked)
    rows = ["no momentum" if "momentum" not in own else _row(own) for own in listed]
    lines = [f"| | {' | '.join(f'lr {lr:g}' for lr in rates)} |", "| --- " * (1 + len(rates)) + "|"]
    for row in dict.fromkeys(rows):
        cells = [_cell(found.get((row, lr), [])) for lr in rates]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return lines


def _failed(record: Record) -> bool:
    start = record["curve"]["error"][0]
    most = 0.98 * CONSTANT[record["problem"]] if record["problem"] in CONSTANT else FAILED * start
    return final_error(record) > most


def _row(own: dict) -> str:
    if "momentum_schedule" in own:
        return f"rising to {own['momentum']:g}"
    limit = "no limit" if own["update_limit"] is None else f"limit {own['update_limit']:g}"
    grow = own.get("growth_limit")  # in records from before there was one it was off
    limit = limit if grow is None else f"growth {grow:g}, {limit}"
    return limit if own["lr_schedule"] == "constant" else f"{limit}, ramp"


def _cell(ends: list[tuple[float, bool]]) -> str:
    if not ends:
        return "-"
    failed = sum(failed for _, failed in ends)
    return f"{statistics.median(error for error, _ in ends):.3g}" + (
        f" ({failed} of {len(ends)} failed)" if failed else ""
    )


def main() -> None:
    """Train what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", nargs="+", default=["mnist", "curves-like"])
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--rising", nargs="+", type=float, default=[])
    parser.add_argument("--limits", nargs="*", default=[str(x or "none") for x in LIMITS])
    parser.add_argument("--ramps", nargs="+", default=list(RAMPS))
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--table", action="store_true", help="read the records, train nothing")
    parser.add_argument("--growth", action="store_true", help="the default growth_limit as well")
    given = parser.parse_args()
    for name in given.problems:
        problem, folder = BUILT_IN[name](given.data), given.out / name
        if not given.table:
            train(problem, folder, given)
        lines = table(folder, given.rates, **chosen(given))
        print(f"\n{problem.name}\n\n" + "\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
