"""Where the defaults of ESGD and JacobiSGD come from: one factor at a time, on four problems.

    python -m benchmarks.defaults --data FOLDER --out defaults.jsonl --problems mnist curves
    python -m benchmarks.defaults --out defaults.jsonl --table

Every line of the output is one training run: its settings and the running training error over each
twentieth of the run. The auto-encoders train as stacks of trials (on a GPU, in minutes), the small
problems one after the other with the optimizers themselves. Runs already in the file are skipped.
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

from benchmarks.small_problems import AUTOENCODERS, PROBLEMS
from benchmarks.stack import Stack
from equilibrate import ESGD, JacobiSGD

Trial = dict[str, Any]
PARTS = 20


class OneDamping(ESGD):
    """ESGD whose relative damping is a share of the mean over ALL tensors, for comparison."""

    def _damping(self, group, parameters):
        fills = super()._damping(group, parameters)[1]
        return [group["damping"] * group["mean_scale"]] * len(parameters), fills


METHODS = {
    "ESGD": ESGD,
    "JacobiSGD": JacobiSGD,
    "OneDamping": OneDamping,
    "SGD": torch.optim.SGD,
    "RMSprop": torch.optim.RMSprop,
}

ESGD_BASE = {
    "lr": 0.03, "damping": 1e-2, "decay": 0.998, "warmup_probes": 20, "distribution": "rademacher",
}  # fmt: skip
BASE: dict[str, Trial] = {
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
    "OneDamping": {"damping": [1e-4, 1e-3, 1e-2, 1e-1, 1.0]},
    "JacobiSGD": {
        "lr": [3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1],
        "damping": [1e-3, 1e-2, 1e-1, 1.0],
        "decay": [None, 0.9999, 0.9995, 0.998, 0.99],
        "warmup_probes": [1, 20, 100],
    },
    "SGD": {"lr": [0.01, 0.02, 0.05, 0.1]},
    "RMSprop": {"lr": [1e-4, 2e-4, 5e-4, 1e-3]},
}


# At lr 0.03 runs on CURVES-like data scatter: a second look at 0.02.
SECOND_BASE = {"ESGD": ESGD_BASE | {"lr": 0.02}}
SECOND_FACTORS: dict[str, dict[str, list[Any]]] = {
    "ESGD": {"decay": [None, 0.9995, 0.999, 0.998, 0.995], "warmup_probes": [1, 20]},
}


def plan(problem: str) -> tuple[dict[str, Trial], dict[str, dict[str, list[Any]]]]:
    """Return the base settings and the factors varied around them."""
    return (SECOND_BASE, SECOND_FACTORS) if problem == "short_curves" else (BASE, FACTORS)


def trials(problem: str, seed: int) -> list[Trial]:
    """Return every run of the measurement, the base setting of each method once."""
    found = {}
    base, factors_of = plan(problem)
    for method, factors in factors_of.items():
        for name, values in factors.items():
            for value in values:
                settings = base[method] | {name: value}
                trial = {"problem": problem, "method": method, "seed": seed, "settings": settings}
                found[_key(trial)] = trial
    return list(found.values())


def train_alone(trial: Trial, data: Path, device: str) -> list[float]:
    """Train once with the optimizer itself; return the mean error of every epoch."""
    problem = PROBLEMS[trial["problem"]](data, device, trial["seed"])
    optimizer = METHODS[trial["method"]](problem.model.parameters(), **trial["settings"])
    errors: list[float] = []
    for epoch in range(problem.epochs):
        total, count = torch.zeros((), device=device), 0
        for inputs, targets in problem.batches(seed=epoch):
            output = problem.model(inputs)
            loss = problem.loss(output, targets)
            if hasattr(optimizer, "probe"):
                optimizer.probe(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += problem.error(output.detach(), targets)
            count += 1
        errors.append(float(total) / count)
        if not math.isfinite(errors[-1]):
            break
    return errors


def train_stack(group: list[Trial], data: Path, device: str) -> list[list[float]]:
    """Train the trials of one method at once; return for each the mean error of every epoch."""
    first = group[0]
    problem = PROBLEMS[first["problem"]](data, device, first["seed"])
    stack = Stack(first["method"], [t["settings"] for t in group], [problem.model] * len(group))
    errors: list[list[float]] = [[] for _ in group]
    for epoch in range(problem.epochs):
        total, count = torch.zeros(len(group), device=device), 0
        for inputs, _ in problem.batches(seed=epoch):
            total += stack.step(inputs.expand(len(group), -1, -1))
            count += 1
        for history, error in zip(errors, (total / count).tolist(), strict=True):
            history.append(error)
        if epoch % 10 == 9:
            print(first["problem"], first["method"], "epoch", epoch + 1, flush=True)
    return errors


def parts(errors: list[float]) -> list[float | None]:
    """Return the mean over each twentieth of a run, None where it had diverged."""
    size = max(1, math.ceil(len(errors) / PARTS))
    means = [sum(errors[i : i + size]) / size for i in range(0, len(errors) - size + 1, size)]
    return [mean if math.isfinite(mean) else None for mean in means]


def runs(todo: list[Trial], data: Path, device: str) -> Iterator[tuple[list[Trial], Any]]:
    """Yield groups of trials with their errors, as they finish."""
    for (name, method, _), members in groupby(
        todo, key=lambda t: (t["problem"], t["method"], t["seed"])
    ):
        group = list(members)
        if name in AUTOENCODERS:
            yield group, train_stack(group, data, device)
            continue
        for trial in group:
            try:
                yield [trial], [train_alone(trial, data, device)]
            except RuntimeError as error:  # a diverged run ends in "no finite curvature"
                print(method, trial["settings"], error)
                yield [trial], [[math.nan]]


def measure(out: Path, data: Path, device: str, problems: list[str], seeds: int) -> None:
    """Run what is not in the file yet."""
    done = {_key(record) for record in _read(out)}
    wanted = [t for seed in range(seeds) for p in problems for t in trials(p, seed)]
    todo = [trial for trial in wanted if _key(trial) not in done]
    started, finished = time.perf_counter(), 0
    for group, errors in runs(todo, data, device):
        with out.open("a") as file:
            for trial, history in zip(group, errors, strict=True):
                file.write(json.dumps(trial | {"errors": parts(history)}) + "\n")
        finished += len(group)
        spent = time.perf_counter() - started
        left = spent / finished * (len(todo) - finished)
        print(f"{finished}/{len(todo)} runs, {spent:.0f} s, about {left:.0f} s left", flush=True)


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
        for method, factors in factors_of.items():
            for name, values in factors.items():
                print(f"\n| {method}: {name} | " + " | ".join(problems) + " |")
                print("| --- |" + " --- |" * len(problems))
                for value in values:
                    settings = base[method] | {name: value}
                    cells = [_cell(records, problem, method, settings) for problem in problems]
                    print(f"| {value} | " + " | ".join(cells) + " |")


def _cell(records: list[Trial], problem: str, method: str, settings: Trial) -> str:
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
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS)[:4])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the table and stop")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    if not given.table:
        measure(given.out, given.data, given.device, given.problems, given.seeds)
    table(given.out)


if __name__ == "__main__":
    main()
