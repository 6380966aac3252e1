"""What a floor under the mean of D does: ESGD with and without it, NAG and Adam, on a small net.

    python -m benchmarks.mean_floor --problems mnist curves-like --data FOLDER --out RECORDS
    python -m benchmarks.mean_floor --problems mnist --out RECORDS --table

An auto-encoder 196-256-128-64-16 of images of 14 x 14 pixels, the mean of 2 x 2 of MNIST's (the
first 20,000) or of CURVES-like ones: what a CPU trains in minutes. 10,000 updates of 200 images,
a learning rate that falls along half a cosine, momentum on Sutskever's schedule to 0.99 (Adam's
beta1 0.9). Every arm has the same number of learning rates, half a decade apart, over the same
width; the best of each then trains with two more seeds. The error is the squared error over the
training set.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch

from benchmarks import one_stack
from equilibrate.optim import ESGD
from equilibrate.study.journal import read_records
from equilibrate.study.methods import Method
from equilibrate.study.outcome import Record, final_error
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.trial import Trial

EPOCHS = 100
SEEDS = (0, 1, 2)
_FALLING = {"lr_schedule": "cosine"}
_RISING = {**_FALLING, "momentum": 0.99, "nesterov": True, "momentum_schedule": "sutskever"}

ARMS: dict[str, Method] = {
    "NAG": Method("nag", torch.optim.SGD, {}, _RISING),
    "Adam": Method("adam", torch.optim.Adam, {}, {**_FALLING, "betas": (0.9, 0.999)}),
    "ESGD": Method("esgd", ESGD, {}, _RISING),
    "ESGD, mean_floor": Method("floor", ESGD, {}, {**_RISING, "mean_floor": True}),
}
LOWEST = {"NAG": 0.003, "Adam": 0.0003, "ESGD": 0.003, "ESGD, mean_floor": 0.003}
RATES = 6  # five at first: NAG's best was the highest on CURVES-like images, so all had one more


def rates(arm: str) -> list[float]:
    """Return the learning rates of an arm.

    Example:
        >>> rates("NAG")
        [0.003, 0.009487, 0.03, 0.09487, 0.3, 0.9487]
    """
    return [float(f"{LOWEST[arm] * 10 ** (k / 2):.4g}") for k in range(RATES)]


def trial(problem: Problem, arm: str, lr: float, seed: int) -> Trial:
    method = ARMS[arm]
    own = {**method.fixed, "lr": lr}
    what = problem.name, problem.fingerprint, method.name, own, seed, problem.batch_size
    return Trial(*what, EPOCHS, "float32")


def train(problem: Problem, folder: Path, arms: list[str]) -> None:
    """Train what is missing: every learning rate, then the best of each arm with more seeds."""
    methods = {ARMS[arm].name: ARMS[arm] for arm in arms}
    device = torch.device("cpu")
    search = [trial(problem, arm, lr, 0) for arm in arms for lr in rates(arm)]
    one_stack.train(problem, methods, search, folder, device, EPOCHS / 10)
    best = {arm: min(found(folder, arm), key=lambda pair: pair[1])[0] for arm in arms}
    more = [trial(problem, arm, best[arm], seed) for arm in arms for seed in SEEDS[1:]]
    one_stack.train(problem, methods, more, folder, device, EPOCHS / 10)


def found(folder: Path, arm: str, seed: int = 0) -> list[tuple[float, float]]:
    """Return learning rates and final errors that are recorded of an arm."""
    records: list[Record] = list(read_records(folder).values())
    own = [r for r in records if r["method"] == ARMS[arm].name and r["seed"] == seed]
    return [(r["settings"]["lr"], final_error(r)) for r in own]


def table(folder: Path) -> list[str]:
    """Return the search and, over seeds, what its best settings give."""
    lines = ["| | learning rates | error of each | best, over seeds |", "| --- | --- | --- | --- |"]
    for arm in ARMS:
        ends: dict[float, Any] = dict(found(folder, arm))
        listed = rates(arm)
        shown = ", ".join(f"{ends[lr]:.3g}" if lr in ends else "-" for lr in listed)
        best = min(ends, key=lambda lr: ends[lr])
        over = [end for seed in SEEDS for lr, end in found(folder, arm, seed) if lr == best]
        spread = f"{statistics.median(over):.3g} [{min(over):.3g}, {max(over):.3g}]"
        lines.append(f"| {arm} | {listed[0]:g} to {listed[-1]:g} | {shown} | {spread} |")
    return lines


def main() -> None:
    """Train what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", nargs="+", default=["curves-like"])
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--table", action="store_true", help="read the records, train nothing")
    given = parser.parse_args()
    for name in given.problems:
        folder = given.out / name
        if not given.table:
            train(BUILT_IN[f"{name}-14"](given.data), folder, given.arms)
        print(f"\n{name}\n\n" + "\n".join(table(folder)), flush=True)


if __name__ == "__main__":
    main()
