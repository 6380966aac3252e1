"""The recipe of docs/strong-damping.md as it stands there, nothing searched.

    python -m benchmarks.recipe --problems mnist curves-like --data FOLDER --out RECORDS
    python -m benchmarks.recipe --problems mnist curves-like --out results/strong-damping --table

A damping of half the first mean of D, the learning rate at the edge of stability of one batch at
the start, a momentum that rises to 0.99, a memory of 2,000 steps; on the networks, and for as many
updates, as in `benchmarks.strong_damping`, whose NAG and ESGD are the best of a search.
"""

import argparse
from pathlib import Path

import torch

from benchmarks import one_stack
from benchmarks.one_stack import precision_of
from benchmarks.strong_damping import EPOCHS, METHODS, over_seeds
from equilibrate.monitor import suggest_learning_rate
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.trial import Trial

DAMPED = {"damping": 0.5, "damping_kind": "initial", "momentum": 0.99, "nesterov": True}
SCHEDULES = {"lr_schedule": "cosine", "momentum_schedule": "sutskever"}
FOLDER = "{}-recipe"


def edge(problem: Problem) -> float:
    """Return the edge of stability of the first batch at the start, at seed 0."""
    network, batch = problem.network(0), problem.data()[0][: problem.batch_size]
    loss = problem.loss(network(batch), batch)
    return suggest_learning_rate(loss, network.parameters(), **DAMPED).edge


def trials(problem: Problem, seeds: int, precision: str) -> list[Trial]:
    """Return the recipe with so many seeds."""
    what = problem.name, problem.fingerprint, METHODS["ESGD"].name
    own = {**DAMPED, **SCHEDULES, "decay": 0.9995, "lr": float(f"{edge(problem):.3g}")}
    size = problem.batch_size
    return [Trial(*what, own, seed, size, EPOCHS, precision) for seed in range(seeds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=["curves-like"])
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/recipe"))
    parser.add_argument(
        "--table", action="store_true", help="print what is recorded, train nothing"
    )
    given = parser.parse_args()
    for name in given.problems:
        folder = given.out / FOLDER.format(name)
        if not given.table:
            problem = BUILT_IN[f"{name}-14"](given.data)
            asked = trials(problem, given.seeds, precision_of(given.device))
            one_stack.train(problem, METHODS["ESGD"], asked, folder, given.device)
        print(*(f"| {name} {row[1:]}" for row in over_seeds(folder, "ESGD")), sep="\n")


if __name__ == "__main__":
    main()
