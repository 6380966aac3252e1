"""How much damping a long run with momentum wants: every method between its own scaling and none.

    python -m benchmarks.strong_damping --problems mnist curves-like --device cuda --data FOLDER --out RECORDS
    python -m benchmarks.strong_damping --problems mnist curves-like --data FOLDER --out RECORDS --methods NAG ESGD --seeds 3
    python -m benchmarks.strong_damping --problems mnist --out RECORDS --table

With damping far above D, g / (D + damping) is a gradient step at the rate lr / damping: ESGD, and in
the same way RMSProp, Adam and Jacobi, become NAG. Here each is tried from weak to strong damping on
the small auto-encoders of `benchmarks.mean_floor`: 100,000 updates, a learning rate that falls
along half a cosine, momentum on Sutskever's schedule. Learning rates are written as s times
(typical scale + damping), so that s is the step of a typical element at every damping. The squared
error over the training set, one seed; the best of every method is then trained with more of them,
all anew. What is learned here is tried on the paper's networks by
`equilibrate paper damped`, with as many trials for every method.
"""  # noqa: E501

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import one_stack
from benchmarks.one_stack import precision_of
from equilibrate.optim import ESGD, JacobiSGD
from equilibrate.study.journal import read_records
from equilibrate.study.methods import Method
from equilibrate.study.outcome import Record, final_error
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.trial import Trial

EPOCHS = 1000
_COSINE = {"lr_schedule": "cosine"}
_RISING = {**_COSINE, "nesterov": True, "momentum_schedule": "sutskever"}
_TORCH = {**_COSINE, "momentum_schedule": "sutskever"}
_ABSOLUTE = {**_RISING, "momentum": 0.99, "damping_kind": "absolute"}

METHODS = {
    "NAG": Method("nag", torch.optim.SGD, {}, {}),
    "RMSProp": Method("rmsprop", torch.optim.RMSprop, {}, {}),
    "Adam": Method("adam", torch.optim.Adam, {}, {}),
    "Jacobi": Method("jacobi", JacobiSGD, {}, {}),
    "ESGD": Method("esgd", ESGD, {}, {}),
}
STEPS = (0.03, 0.06, 0.12, 0.24)
# Typical scale, and the dampings tried.
SCALES: dict[str, tuple[float, tuple[float, ...]]] = {
    "RMSProp": (5e-3, (1e-4, 1e-3, 1e-2)),
    "Adam": (5e-3, (1e-6, 1e-3, 1e-2)),
    "Jacobi": (0.1, (0.03, 0.3, 3.0)),
    "ESGD": (1.0, (0.03, 0.1, 0.3, 1.0, 3.0)),
}


def settings(name: str) -> list[dict[str, Any]]:
    """Return what is tried of a method.

    Example:
        >>> settings("RMSProp")[0]["lr"]
        0.000153
        >>> len(settings("NAG")), len(settings("ESGD"))
        (12, 34)
    """
    if name == "NAG":
        return [{**_RISING, "momentum": m, "lr": s} for m in (0.98, 0.99, 0.995) for s in STEPS]
    scale, dampings = SCALES[name]
    steps = STEPS[:3] if name == "ESGD" else STEPS  # it has more dampings, and two memories
    pairs = [(damping, s * (scale + damping)) for damping in dampings for s in steps]
    return [each for damping, lr in pairs for each in _at(name, damping, float(f"{lr:.4g}"))] + (
        _relative() if name == "ESGD" else []
    )


def _at(name: str, damping: float, lr: float) -> list[dict[str, Any]]:
    if name == "RMSProp":
        return [{**_TORCH, "momentum": 0.99, "alpha": 0.9995, "eps": damping, "lr": lr}]
    if name == "Adam":  # its average of gradients has weight one, a sum of them 1 / (1 - beta1)
        return [{**_COSINE, "betas": (0.99, 0.9995), "eps": damping, "lr": 100 * lr}]
    memories = (0.9995,) if name == "Jacobi" else (0.998, 0.9995)
    return [{**_ABSOLUTE, "damping": damping, "lr": lr, "decay": memory} for memory in memories]


def _relative() -> list[dict[str, Any]]:
    """Damping by each tensor's own mean, with and without the floor under the mean of D."""
    own = {**_RISING, "momentum": 0.99, "decay": 0.9995, "damping": 0.3}
    return [
        {**own, "lr": lr, "mean_floor": floor} for floor in (False, True) for lr in (0.03, 0.06)
    ]


def trials(problem: Problem, name: str, precision: str) -> list[Trial]:
    """Return the trials of a method."""
    what = problem.name, problem.fingerprint, METHODS[name].name
    size = problem.batch_size
    return [Trial(*what, own, 0, size, EPOCHS, precision) for own in settings(name)]


def found(folder: Path, name: str) -> list[Record]:
    """Return the records of a method, the best first."""
    own = [r for r in read_records(folder).values() if r["method"] == METHODS[name].name]
    return sorted(own, key=final_error)


def again(trial: Trial, record: Record, seeds: int) -> list[Trial]:
    """Return the settings of a record with so many seeds."""
    settings = record["settings"]
    return [replace(trial, settings=settings, seed=seed) for seed in range(seeds)]


def table(folder: Path, name: str) -> list[str]:
    """Return all trials of a method, the best first."""
    return [
        f"| {name} | {_told(record)} | {final_error(record):.4g} |"
        for record in found(folder, name)
    ]


def over_seeds(folder: Path, name: str) -> list[str]:
    """Return the best settings of a method over their seeds."""
    ends = [final_error(record) for record in found(folder, name)]
    if not ends:
        return []
    middle, least, most = statistics.median(ends), min(ends), max(ends)
    text = _told(found(folder, name)[0])
    return [f"| {name} | {text} | {middle:.4g} [{least:.4g}, {most:.4g}], {len(ends)} seeds |"]


def _told(record: Record) -> str:
    shown = ("lr", "momentum", "damping", "eps", "decay", "mean_floor")
    own = {k: record["settings"][k] for k in shown if k in record["settings"]}
    return ", ".join(f"{key} {value:g}" for key, value in own.items())


def train(problem: Problem, folder: Path, given: argparse.Namespace) -> None:
    """Train what is missing: every setting, or the best of each method with more seeds."""
    methods = {METHODS[name].name: METHODS[name] for name in given.methods}
    asked = {m: trials(problem, m, precision_of(given.device)) for m in given.methods}
    if given.seeds:
        best = {m: found(folder, m)[:1] for m in given.methods}
        asked = {m: again(asked[m][0], won, given.seeds) for m, own in best.items() for won in own}
        folder = folder.with_name(f"{folder.name}-seeds")
    every = [trial for listed in asked.values() for trial in listed]
    one_stack.train(problem, methods, every, folder, given.device, EPOCHS / 30)


def main() -> None:
    """Train what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--problems", nargs="+", default=["mnist"])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--table", action="store_true", help="read the records, train nothing")
    parser.add_argument("--seeds", type=int, help="train the best of each method with so many")
    given = parser.parse_args()
    for name in given.problems:
        folder, repeated = given.out / name, given.out / f"{name}-seeds"
        if not given.table:
            train(BUILT_IN[f"{name}-14"](given.data), folder, given)
        print(f"\n{name}\n\n| | settings | error |\n| --- | --- | --- |")
        rows = [row for each in given.methods for row in table(folder, each)]
        rows += [row for each in given.methods for row in over_seeds(repeated, each)]
        print("\n".join(rows), flush=True)


if __name__ == "__main__":
    main()
