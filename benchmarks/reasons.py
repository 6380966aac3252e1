"""Why ESGD as shipped and Algorithm 1 differ in Figure 3: one setting changed at a time.

    python -m benchmarks.reasons --device cuda --data FOLDER --out RECORDS
    python -m benchmarks.reasons --out RECORDS --table

From ESGD as shipped towards Algorithm 1 with a warm-up: the memory of the average, the damping, the
vectors, each alone. A longer memory also averages more probes, so that its diagonal is less noisy:
four times as many probes with the short memory tell the two apart. And what a constant learning
rate costs at the end: the winners of Figure 3 with the learning rate lowered to zero by a cosine.
All trials of a problem train in one stack; the table shows the median over seeds with the least and
the greatest.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks import one_stack
from benchmarks.one_stack import precision_of
from equilibrate.paper.arm_records import told
from equilibrate.paper.arms import ARMS
from equilibrate.study.journal import Record, read_records
from equilibrate.study.outcome import Spread
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.search import error_at
from equilibrate.study.trial import Trial

LR = 0.03
ALGORITHM_1 = {**ARMS["esgd-warm"].fixed, "lr": LR, "damping": 1e-4}
WINNERS: dict[str, dict[str, Any]] = {  # rounded, of Figure 3 on MNIST
    "sgd": {"lr": 0.07},
    "rmsprop": {"lr": 6.5e-4, "alpha": 0.95, "eps": 1e-5},
    "jacobi": {**ARMS["jacobi"].fixed, "lr": 3.5e-4, "damping": 1e-4},
    "esgd-warm": ALGORITHM_1,
    "esgd": {"lr": LR},
}

CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "ESGD as shipped": ("esgd", {"lr": LR}),
    "memory of 2,000 steps": ("esgd", {"lr": LR, "decay": 0.9995}),
    "memory of 10,000 steps": ("esgd", {"lr": LR, "decay": 0.9999}),
    "memory of 50,000 steps": ("esgd", {"lr": LR, "decay": 0.99998}),
    "never forgets": ("esgd", {"lr": LR, "decay": None}),
    "damping 1e-4, absolute": ("esgd", {"lr": LR, "damping": 1e-4, "damping_kind": "absolute"}),
    "normal vectors": ("esgd", {"lr": LR, "distribution": "gaussian"}),
    "a probe in 5 steps": ("esgd", {"lr": LR, "probe_every": 5}),
    "Algorithm 1 with warm-up": ("esgd-warm", ALGORITHM_1),
    "SGD": ("sgd", WINNERS["sgd"]),
    "RMSProp": ("rmsprop", WINNERS["rmsprop"]),
    "Jacobi SGD": ("jacobi", WINNERS["jacobi"]),
} | {
    f"{ARMS[name].label}, cosine": (name, {**settings, "lr_schedule": "cosine"})
    for name, settings in WINNERS.items()
}


def trials(problem: Problem, epochs: int, seeds: int, precision: str) -> list[Trial]:
    """Return the trials of every change, one a seed."""
    name, data, size = problem.name, problem.fingerprint, problem.batch_size
    return [
        Trial(name, data, method, settings, seed, size, epochs, precision)
        for method, settings in CHANGES.values()
        for seed in range(seeds)
    ]


def train(problem: Problem, folder: Path, given: argparse.Namespace) -> None:
    """Train and record what is missing."""
    device = torch.device(given.device)
    asked = trials(problem, given.epochs, given.seeds, precision_of(device))
    one_stack.train(problem, ARMS, asked, folder, device)


def table(folder: Path) -> list[str]:
    """Return a table of the records: one row a change, the errors along training across."""
    records = list(read_records(folder).values())
    last = max((record["epochs"] for record in records), default=0)
    columns = [last // 10, last // 4, last // 2, last]
    lines = ["| | " + " | ".join(f"epoch {n}" for n in columns) + " |", "| --- " * 5 + "|"]
    for label, (method, settings) in CHANGES.items():
        own = [r for r in records if r["method"] == method and _same(r, settings)]
        if own:
            lines.append(f"| {label} | " + " | ".join(_cell(own, n) for n in columns) + " |")
    return lines


def _same(record: Record, settings: Mapping[str, Any]) -> bool:
    return bool(record["settings"] == settings)


def _cell(records: list[Record], epoch: int) -> str:
    return told(Spread.of([error_at(record["curve"], epoch) for record in records]))


def main() -> None:
    """Train what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", nargs="+", default=["curves-like", "mnist"])
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--table", action="store_true", help="read the records, train nothing")
    given = parser.parse_args()
    for name in given.problems:
        problem, folder = BUILT_IN[name](given.data), given.out / name
        if not given.table:
            train(problem, folder, given)
        print(f"\n{problem.name}\n\n" + "\n".join(table(folder)), flush=True)


if __name__ == "__main__":
    main()
