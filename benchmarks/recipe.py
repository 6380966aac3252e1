"""The recipe of docs/strong-damping.md as it stands there, nothing searched.

    python -m benchmarks.recipe --problems mnist curves-like --data FOLDER --out RECORDS
    python -m benchmarks.recipe --problems mnist curves-like --out results/strong-damping --table
    python -m benchmarks.recipe --momenta 0.995 0.9975 --floors no yes --data FOLDER --out RECORDS

A damping of half the first mean of D, the learning rate at the edge of stability of one batch at
the start, a momentum that rises to 0.99, a memory of 2,000 steps; on the networks, and for as many
updates, as in `benchmarks.strong_damping`, whose NAG and ESGD are the best of a search. And the
same with larger momenta, with and without the floor under the mean of D (`mean_floor`); `--nag`
trains NAG with these momenta, at the best learning rate of its search and at half of it, or at
those of `--rates`. `--problems mnist-linear curves-like-linear` have a linear code layer; `--edges`
takes other shares of the edge.
"""

import argparse
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from benchmarks import one_stack
from benchmarks.one_stack import precision_of
from benchmarks.strong_damping import EPOCHS, METHODS
from equilibrate.monitor import suggest_learning_rate
from equilibrate.paper.arm_records import told
from equilibrate.study.journal import read_records
from equilibrate.study.outcome import Spread, final_error
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.trial import Trial

DAMPED = {"damping": 0.5, "damping_kind": "initial", "momentum": 0.99, "nesterov": True}
SCHEDULES = {"lr_schedule": "cosine", "momentum_schedule": "sutskever"}
FOLDER, CHANGED = "{}-recipe", "{}-recipe-changed"
NAG_RATES = {
    "mnist": (0.06, 0.03),
    "curves-like": (0.12, 0.06),
    "mnist-linear": (0.12, 0.06, 0.03),  # of the sigmoid codes, with the third rate tried there
    "curves-like-linear": (0.24, 0.12, 0.06),
}


def edge(problem: Problem) -> float:
    """Return the edge of stability of the first batch at the start, at seed 0."""
    network, batch = problem.network(0), problem.data()[0][: problem.batch_size]
    loss = problem.loss(network(batch), batch)
    return suggest_learning_rate(loss, network.parameters(), **DAMPED).edge


def variant(momentum: float, floor: bool) -> dict[str, Any]:
    """Return a momentum, and a floor or none, in the place of the recipe's own.

    Example:
        >>> variant(0.99, floor=False), variant(0.995, floor=True)
        ({'momentum': 0.99}, {'momentum': 0.995, 'mean_floor': True})
    """
    return {"momentum": momentum} | ({"mean_floor": True} if floor else {})


def trials(
    problem: Problem,
    seeds: int,
    precision: str,
    changes: list[dict[str, Any]],
    shares: Sequence[float] = (1.0,),
) -> list[Trial]:
    """Return the recipe, changed in so many ways, at shares of the edge, with so many seeds."""
    what = problem.name, problem.fingerprint, METHODS["ESGD"].name
    whole, own = edge(problem), {**DAMPED, **SCHEDULES, "decay": 0.9995}
    size, rates = problem.batch_size, [float(f"{share * whole:.3g}") for share in shares]
    return [
        Trial(*what, {**own, **change, "lr": lr}, seed, size, EPOCHS, precision)
        for seed in range(seeds)
        for change in changes
        for lr in rates
    ]


def nag_trials(
    problem: Problem, seeds: int, precision: str, momenta: list[float], rates: tuple[float, ...]
) -> list[Trial]:
    """Return NAG with these momenta and learning rates."""
    what = problem.name, problem.fingerprint, METHODS["NAG"].name
    size, own = problem.batch_size, {**SCHEDULES, "nesterov": True}
    return [
        Trial(*what, {**own, "momentum": m, "lr": lr}, seed, size, EPOCHS, precision)
        for seed in range(seeds)
        for m in momenta
        for lr in rates
    ]


def _what(record: dict[str, Any]) -> str:
    own = record["settings"]
    floor = ", mean_floor" if own.get("mean_floor") else ""
    method = "NAG" if record["method"] == "nag" else "ESGD"
    return f"{method}, lr {own['lr']:g}, momentum {own['momentum']:g}{floor}"


def ends(folder: Path) -> dict[str, Spread]:
    """Return the final errors over seeds, by what was trained."""
    listed = sorted(read_records(folder).values(), key=_what)
    return {what: Spread.of([final_error(r) for r in own]) for what, own in groupby(listed, _what)}


def rows(folder: Path, name: str) -> list[str]:
    """Return a row for each change of the recipe, and for each NAG."""
    return [
        f"| {name} | {what} | {told(end)} | {end.seeds} |" for what, end in ends(folder).items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=["curves-like"])
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--momenta", type=float, nargs="+", default=[DAMPED["momentum"]])
    parser.add_argument("--floors", nargs="+", choices=("no", "yes"), default=["no"])
    parser.add_argument("--edges", type=float, nargs="+", default=[1.0], help="shares of the edge")
    parser.add_argument("--nag", action="store_true", help="train NAG with these momenta instead")
    parser.add_argument("--rates", type=float, nargs="+", help="NAG's learning rates")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/recipe"))
    parser.add_argument(
        "--table", action="store_true", help="print what is recorded, train nothing"
    )
    given = parser.parse_args()
    changes = [variant(m, f == "yes") for m in given.momenta for f in given.floors]
    unchanged = changes == [variant(DAMPED["momentum"], floor=False)] and given.edges == [1.0]
    itself = unchanged and not given.nag
    own = FOLDER if itself else CHANGED
    for name in given.problems:
        if not given.table:
            problem, folder = BUILT_IN[f"{name}-14"](given.data), given.out / own.format(name)
            how = problem, given.seeds, precision_of(given.device)
            rates = tuple(given.rates or NAG_RATES[name])
            nag = nag_trials(*how, given.momenta, rates) if given.nag else []
            asked = nag or trials(*how, changes, given.edges)
            one_stack.train(problem, METHODS["NAG" if nag else "ESGD"], asked, folder, given.device)
        for each in (FOLDER, CHANGED):
            print(*rows(given.out / each.format(name), name), sep="\n")


if __name__ == "__main__":
    main()
