"""The edge of stability at every damping, beside the learning rates that trained best.

    python -m benchmarks.edge_of_damping --data FOLDER --records results

The edge is that of one batch at the start, for Nesterov's momentum of 0.99: 1.34 over the largest
eigenvalue of (D + damping)^-1 H, D by 20 probes (`monitor.suggest_learning_rate`). NAG is the limit
of strong damping, in its own unit. Beside it the learning rates that were tried on the network and
the errors they ended at: of `benchmarks.strong_damping` on the small auto-encoders, of `equilibrate
paper damped` and, for NAG, `falling` on the paper's.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from equilibrate.monitor import suggest_learning_rate
from equilibrate.study.journal import Record, read_records
from equilibrate.study.outcome import final_error
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN

NETWORKS = {
    "mnist-14": ("strong-damping/mnist",),
    "curves-like-14": ("strong-damping/curves-like",),
    "mnist": ("records/damped-mnist", "records/falling-mnist"),
    "curves-like": ("records/damped-curves-like", "records/falling-curves-like"),
}
_STRONG = 1e6  # far above any D


def edge(problem: Problem, damping: float | None) -> float:
    """Return the edge at a damping of ESGD; None stands for NAG."""
    network = problem.network(0)
    batch = problem.data()[0][: problem.batch_size]
    found = suggest_learning_rate(
        problem.loss(network(batch), batch),
        network.parameters(),
        damping=damping or _STRONG,
        damping_kind="absolute",
        momentum=0.99,
        nesterov=True,
    )
    return found.edge if damping else found.edge / _STRONG


def tried(folders: list[Path], damping: float | None) -> Iterator[tuple[float, Any, float]]:
    """Return learning rate, momentum and end of the longest runs at seed 0, by damping or NAG."""
    records: list[Record] = [r for each in folders for r in read_records(each).values()]
    longest = max((record["epochs"] for record in records), default=0)
    for record in records:
        own = record["settings"]
        method = "nag" if damping is None else "esgd"
        asked = record["method"] == method and record["epochs"] == longest and record["seed"] == 0
        if asked and _damping(own) == damping:
            yield own["lr"], own["momentum"], final_error(record)


def _damping(settings: dict[str, Any]) -> float | None:
    """Return the damping, where it is absolute; no method but ESGD and Jacobi has one."""
    absolute = settings.get("damping_kind") == "absolute"
    return settings["damping"] if absolute else None if "damping" not in settings else -1.0


def best(folders: list[Path], damping: float | None) -> list[tuple[float, Any, float]]:
    """Return the two best runs, each of another learning rate or momentum."""
    ends = sorted(tried(folders, damping), key=lambda run: -run[2])
    return sorted({run[:2]: run for run in ends}.values(), key=lambda run: run[2])[:2]


def row(name: str, damping: float | None, limit: float, records: Path) -> str:
    """Return what the table tells of a network at a damping, given the edge there."""
    runs = best([records / each for each in NETWORKS[name]], damping)
    told = "; ".join(f"{lr:g} ({lr / limit:.2g}), {m:g}: {end:.3g}" for lr, m, end in runs)
    label = "NAG" if damping is None else f"ESGD, damping {damping:g}"
    return f"| {name} | {label} | {limit:.3g} | {told} |"


def dampings(name: str, records: Path) -> list[float | None]:
    """Return the dampings at which ESGD was trained on a network; the last is None, for NAG."""
    found = [r for each in NETWORKS[name] for r in read_records(records / each).values()]
    own = {_damping(r["settings"]) for r in found if r["method"] == "esgd"}
    return [*sorted(damping for damping in own if damping and damping > 0), None]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--records", type=Path, default=Path("results"))
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    given = parser.parse_args()
    print("| network | | edge | the two best: lr (over the edge), momentum: end |")
    print("| --- | --- | --- | --- |")
    for name in given.networks:
        problem = BUILT_IN[name](given.data)
        for damping in dampings(name, given.records):
            print(row(name, damping, edge(problem, damping), given.records), flush=True)


if __name__ == "__main__":
    main()
