"""A slow drift of ESGD at a large momentum, and the floor under the mean of D against it.

    python -m benchmarks.drift --out RECORDS [--seeds 2] [--floors no yes]
    python -m benchmarks.drift --out results/drift --table

On the CURVES-like network of the paper, with the damping and the learning rate that won in
`equilibrate paper damped`, one of three seeds died there: its error rose for 40,000 updates while
the momentum did. Here the first 65,000 updates of such runs, at a constant learning rate, with and
without `mean_floor`. In the last 1,000 the momentum is 0.9, as at the end of any run on Sutskever's
schedule, so the table stops before.
"""

import argparse
from pathlib import Path

import torch

from benchmarks import one_stack
from benchmarks.one_stack import precision_of
from equilibrate.paper.damped_arms import DAMPED
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS
from equilibrate.study.journal import read_records
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.search import error_at
from equilibrate.study.trial import Trial

EPOCHS, EVERY = 650, 25
SHOWN = (100, 200, 300, 400, 500, 600)  # epochs of 100 updates


def trials(problem: Problem, seeds: list[int], floors: list[bool], precision: str) -> list[Trial]:
    """Return the winner of the damped study, with and without the floor."""
    own = {**DAMPED["curves-like"][0]["esgd"][0], "lr_schedule": "constant"}
    what = problem.name, problem.fingerprint, "esgd"
    return [
        Trial(*what, {**own, "mean_floor": f}, seed, problem.batch_size, EPOCHS, precision)
        for seed in seeds
        for f in floors
    ]


def table(folder: Path) -> list[str]:
    """Return the error along every run."""
    found = sorted(read_records(folder).values(), key=lambda r: (r["seed"], _floored(r)))
    head = ["| seed | | " + " | ".join(f"{100 * n:,}" for n in SHOWN) + " |"]
    rule = "| --- " * (2 + len(SHOWN)) + "|"
    return [*head, rule] + [
        f"| {r['seed']} | {'mean_floor' if _floored(r) else 'without'} | "
        + " | ".join(f"{error_at(r['curve'], n):.3g}" for n in SHOWN)
        + " |"
        for r in found
    ]


def _floored(record: dict) -> bool:
    return bool(record["settings"]["mean_floor"])


def main() -> None:
    """Train what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[2])
    parser.add_argument("--floors", nargs="+", choices=("no", "yes"), default=["no", "yes"])
    parser.add_argument("--table", action="store_true", help="read the records, train nothing")
    given = parser.parse_args()
    if not given.table:
        problem, floors = BUILT_IN["curves-like"](None), [f == "yes" for f in given.floors]
        asked = trials(problem, given.seeds, floors, precision_of(given.device))
        one_stack.train(problem, MOMENTUM_ARMS, asked, given.out, given.device, EVERY)
    print("\n".join(table(given.out)), flush=True)


if __name__ == "__main__":
    main()
