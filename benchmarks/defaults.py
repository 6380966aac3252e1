"""Where the defaults of ESGD and JacobiSGD come from: one factor at a time, on four problems.

    python -m benchmarks.defaults --data FOLDER --out defaults.jsonl --problems mnist curves
    python -m benchmarks.defaults --out defaults.jsonl --table

Every line of the output is one training run: its settings and the error over the training set, its
mean over each twentieth of the run. The auto-encoders train as stacks of trials (on a GPU, in
minutes), the small problems one after the other. Runs already in the file are skipped.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.small_problems import TASKS, Task
from equilibrate import ESGD, JacobiSGD
from equilibrate.study import Method
from equilibrate.study.alone import Alone
from equilibrate.study.course import Trainer
from equilibrate.study.stack import Stack
from equilibrate.study.trial import Trial

Run = dict[str, Any]
PARTS = 20

CLASSES = (ESGD, JacobiSGD, torch.optim.SGD, torch.optim.RMSprop)
METHODS = {kind.__name__: Method(kind.__name__, kind, {}) for kind in CLASSES}

ESGD_BASE = {
    "lr": 0.03, "damping": 1e-2, "decay": 0.998, "warmup_probes": 20, "distribution": "rademacher",
}  # fmt: skip
BASE: dict[str, Run] = {
    "ESGD": ESGD_BASE,
    "OneDamping": ESGD_BASE,
    "JacobiSGD": ESGD_BASE | {"lr": 0.01, "damping": 0.1, "warmup_probes": 100},
    "SGD": {"lr": 0.05},
    "RMSprop": {"lr": 5e-4, "alpha": 0.95},
}

FACTORS: dict[str, dict[str, list[Any]]] = {
    "ESGD": {
        "lr": [0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2],
        "damping": [1e-4, 1e-3, 1e-2, 1e-1, 1.0],
        "decay": [None, 0.9999, 0.9995, 0.999, 0.998, 0.995, 0.99, 0.98],
        "warmup_probes": [1, 3, 10, 20, 100],
        "distribution": ["rademacher", "gaussian"],
    },
    "JacobiSGD": {
        "lr": [3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1],
        "damping": [1e-3, 1e-2, 1e-1, 1.0],
        "decay": [None, 0.9999, 0.9995, 0.998, 0.99],
        "warmup_probes": [1, 20, 100],
    },
    "SGD": {"lr": [0.01, 0.02, 0.05, 0.1]},
    "RMSprop": {"lr": [1e-4, 2e-4, 5e-4, 1e-3]},
}

# Damping relative to the mean over ALL tensors, measured by an earlier version: for the table only.
EARLIER = {"OneDamping": {"damping": [1e-4, 1e-3, 1e-2, 1e-1, 1.0]}}

# At lr 0.03 runs on CURVES-like data scatter: a second look at 0.02.
SECOND_BASE = {"ESGD": ESGD_BASE | {"lr": 0.02}}
SECOND_FACTORS: dict[str, dict[str, list[Any]]] = {
    "ESGD": {"decay": [None, 0.9995, 0.999, 0.998, 0.995], "warmup_probes": [1, 20]},
}


def plan(problem: str) -> tuple[dict[str, Run], dict[str, dict[str, list[Any]]]]:
    """Return the base settings and the factors varied around them."""
    return (SECOND_BASE, SECOND_FACTORS) if problem == "short_curves" else (BASE, FACTORS)


def runs(problem: str, seed: int) -> list[Run]:
    """Return every run of the measurement, the base setting of each method once."""
    found = {}
    base, factors_of = plan(problem)
    for method, factors in factors_of.items():
        for name, values in factors.items():
            for value in values:
                settings = base[method] | {name: value}
                run = {"problem": problem, "method": method, "seed": seed, "settings": settings}
                found[_key(run)] = run
    return list(found.values())


def train(group: list[Run], data: Path | None, device: torch.device) -> Iterator[tuple[Run, Any]]:
    """Train runs of one method on one problem; yield each with its error after every epoch."""
    task = TASKS[group[0]["problem"]]
    problem = task.problem(data)
    precision = "tf32" if device.type == "cuda" else "float32"
    trials = [
        Trial(problem.name, "-", r["method"], r["settings"], r["seed"], problem.batch_size,
              task.epochs, precision)
        for r in group
    ]  # fmt: skip
    if task.stacked:
        yield from zip(group, errors(Stack(problem, METHODS, trials, device), task), strict=True)
        return
    for run, trial in zip(group, trials, strict=True):
        alone = Alone(problem, METHODS[trial.method], [trial], device)
        yield run, errors(alone, task)[0]


def errors(trainer: Trainer, task: Task) -> list[list[float]]:
    """Return for every trial the error over the training set after each epoch."""
    first = trainer.trials[0]
    per_epoch = len(trainer.data[0]) // first.batch_size
    histories: list[list[float]] = [[] for _ in trainer.trials]
    for epoch in range(task.epochs):
        trainer.advance(per_epoch)
        found = trainer.errors()
        for history, error in zip(histories, found, strict=True):
            history.append(error)
        if epoch % 10 == 9:
            print(first.problem, first.method, "epoch", epoch + 1, flush=True)
        if not any(map(math.isfinite, found)):
            break
    return histories


def parts(errors: list[float]) -> list[float | None]:
    """Return the mean over each twentieth of a run, None where it had diverged."""
    size = max(1, math.ceil(len(errors) / PARTS))
    means = [sum(errors[i : i + size]) / size for i in range(0, len(errors) - size + 1, size)]
    return [mean if math.isfinite(mean) else None for mean in means]


def measure(
    out: Path, data: Path | None, device: torch.device, problems: list[str], seeds: int
) -> None:
    """Run what is not in the file yet."""
    done = {_key(record) for record in _read(out)}
    wanted = [run for seed in range(seeds) for p in problems for run in runs(p, seed)]
    todo = [run for run in wanted if _key(run) not in done]
    started, finished = time.perf_counter(), 0
    for _, members in groupby(todo, key=lambda r: (r["problem"], r["method"], r["seed"])):
        for run, history in train(list(members), data, device):
            with out.open("a") as file:
                file.write(json.dumps(run | {"errors": parts(history)}) + "\n")
            finished += 1
            spent = time.perf_counter() - started
            left = spent / finished * (len(todo) - finished)
            print(f"{finished}/{len(todo)} runs, {spent:.0f} s, about {left:.0f} s left")


def _key(record: dict[str, Any]) -> str:
    return json.dumps({k: record[k] for k in ("problem", "method", "seed", "settings")},
                      sort_keys=True)  # fmt: skip


def _read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def table(out: Path) -> None:
    """Print, for each method and factor, the median final error over seeds on every problem."""
    records = _read(out)
    for problems in (("mnist", "curves", "convolution", "field"), ("short_curves",)):
        base, factors_of = plan(problems[0])
        also = {} if problems == ("short_curves",) else EARLIER
        for method, factors in (factors_of | also).items():
            for name, values in factors.items():
                print(f"\n| {method}: {name} | " + " | ".join(problems) + " |")
                print("| --- |" + " --- |" * len(problems))
                for value in values:
                    settings = base[method] | {name: value}
                    cells = [_cell(records, problem, method, settings) for problem in problems]
                    print(f"| {value} | " + " | ".join(cells) + " |")


def _cell(records: list[Run], problem: str, method: str, settings: Run) -> str:
    wanted = (problem, method, settings)
    final = [
        math.inf if r["errors"][-1] is None else r["errors"][-1]
        for r in records
        if (r["problem"], r["method"], r["settings"]) == wanted
    ]
    return f"{median(final):.3g} ({len(final)})" if final else "-"


def main() -> None:
    """Measure, or print the table of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("defaults.jsonl"))
    parser.add_argument("--data", type=Path, help="folder with the MNIST files")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--problems", nargs="+", choices=list(TASKS), default=list(TASKS)[:4])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the table and stop")
    given = parser.parse_args()
    if not given.table:
        device = torch.device(given.device)
        measure(given.out, given.data, device, given.problems, given.seeds)
    table(given.out)


if __name__ == "__main__":
    main()
