"""Throughput of a study: two one-core workers of a Ray cluster, one of them, and no cluster at all.

    OMP_WAIT_POLICY=passive python -m benchmarks.cluster_throughput [--trials 4] [--rounds 3]

The study trains the CURVES-like auto-encoder, SGD and ESGD, one trial after the other at a worker.
The cluster has two nodes of one core on this machine. Every round runs each contestant once, after
one round that is not measured (workers start, torch is imported). Needs two free cores. Ray starts
its workers with a low priority; here they have that of everything else.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import ray
import torch
from ray.cluster_utils import Cluster

from equilibrate.study.choose import Chooser
from equilibrate.study.cluster import connected
from equilibrate.study.cluster.crew import ClusterCrew
from equilibrate.study.cluster.workers import Workers
from equilibrate.study.compare import Plan
from equilibrate.study.crew import Crew
from equilibrate.study.methods import METHODS
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.study import run_study

STORE = 512 * 2**20  # bytes of shared memory on a node: the images twice over, and checkpoints
NAMES = ("sgd", "esgd")


class OneWorker(Workers):
    """The same cluster, of which one worker at a time is used."""

    def slots(self) -> int:
        """Return one slot."""
        return min(1, super().slots())


@contextmanager
def two_nodes() -> Iterator[str]:
    """A cluster of two nodes of one core each, and a head that computes nothing."""
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (so spelled by Ray)
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


def seconds(plan: Plan, crew: Crew | None) -> float:
    """Return how long the study takes in a new folder."""
    methods = {method.name: method for method in plan.methods}
    with tempfile.TemporaryDirectory() as folder:
        chooser = Chooser(plan.problem, methods, Path(folder), torch.device("cpu"), at_once=1)
        started = time.perf_counter()
        run_study(
            plan.problem,
            plan.searched(),
            folder,
            make_trainer=chooser.make_trainer,
            together=chooser.together,
            crew=crew,
        )
        return time.perf_counter() - started


def measure(plan: Plan, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every contestant in every round."""
    with two_nodes() as address, connected(address) as two:
        crews: dict[str, Crew | None] = {
            "two one-core workers": two,
            "one one-core worker": ClusterCrew(OneWorker(threads=1, gpu=False)),
            "local, two threads": None,
        }
        torch.set_num_threads(2)
        found: dict[str, list[float]] = {name: [] for name in crews}
        for turn in range(rounds + 1):
            for name, crew in crews.items():
                spent = seconds(plan, crew)
                print(f"round {turn}: {name} {spent:.1f} s", file=sys.stderr, flush=True)
                if turn:
                    found[name].append(spent)
    return found


def table(found: dict[str, list[float]], work: float) -> str:
    """Return trial-epochs per second, and their ratio to those of one worker, round by round."""
    one = found["one one-core worker"]
    lines = ["| | trials × epochs per second | over one worker |", "| --- | --- | --- |"]
    for name, spent in found.items():
        ratios = [single / own for single, own in zip(one, spent, strict=True)]
        shown = f"{statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in ratios)})"
        lines.append(f"| {name} | {work / statistics.median(spent):.3f} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=4, help="of each method")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    problem = replace(BUILT_IN["curves-like"](None))
    methods = [METHODS[name] for name in NAMES]
    plan = Plan(problem, methods, trials=arguments.trials, epochs=arguments.epochs)
    found = measure(plan, arguments.rounds)
    print(table(found, len(plan.searched()) * arguments.epochs))
    print(f"torch {torch.__version__}, ray {ray.__version__}")


if __name__ == "__main__":
    main()
