"""How far the suggested learning rate, and the edge, lie from the best one found by training.

    python -m benchmarks.suggested_rate --data FOLDER

The best rates are those of docs/defaults.jsonl (ESGD as shipped, all else at its centre); the
suggestion is made before the first step, on three batches at three seeds.
"""

import argparse
import json
import statistics
from pathlib import Path

import torch

from benchmarks.small_problems import TASKS
from equilibrate.monitor import suggest_learning_rate
from equilibrate.monitor.suggested_rate import SHARE

RECORDS = Path(__file__).parents[1] / "docs" / "defaults.jsonl"
CENTRE = {"damping": 0.01, "decay": 0.998, "warmup_probes": 20, "distribution": "rademacher"}
SEEDS = range(3)


def trained(problem: str) -> dict[float, float]:
    """Return the error that each learning rate reached."""
    records = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    return {
        r["settings"]["lr"]: r["errors"][-1]
        for r in records
        if (r["problem"], r["method"], r["seed"]) == (problem, "ESGD", 0)
        and {k: v for k, v in r["settings"].items() if k != "lr"} == CENTRE
    }


def suggested(name: str, folder: Path | None) -> list[float]:
    """Return the suggestions of several seeds, each for a network and a batch of its own."""
    problem = TASKS[name].problem(folder)
    inputs, targets = problem.cases
    rates = []
    for seed in SEEDS:
        network = problem.network(seed)
        chosen = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
        batch = chosen[: problem.batch_size]
        loss = problem.loss(network(inputs[batch]), targets[batch])
        rates.append(suggest_learning_rate(loss, network.parameters(), seed=seed).lr)
    return rates


def main() -> None:
    """Print a table, one line for each problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    folder = parser.parse_args().data
    print("| problem | suggested | best of the search | suggested over best | edge over best |")
    print("| --- | --- | --- | --- | --- |")
    for name in ("mnist", "curves", "convolution", "field"):
        errors, rates = trained(name), suggested(name, folder)
        best, middle = min(errors, key=errors.__getitem__), statistics.median(rates)
        spread = f"{middle:.3g} [{min(rates):.3g}, {max(rates):.3g}]"
        ratio = middle / best
        print(f"| {name} | {spread} | {best:g} | {ratio:.2f} | {ratio / SHARE:.2f} |", flush=True)


if __name__ == "__main__":
    main()
