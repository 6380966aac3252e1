"""What an iteration costs the host, part by part: tensors so small that no device is waited for.

    python -m benchmarks.host_cost --device cuda

Eight layers of four units, 16 tensors; with `--layers 74` as many as a transformer of 124 million
parameters has. Medians in microseconds: of the backward pass (ESGD's is `probe(loss,
backward=True)`), of the step and of `zero_grad`; then all three against SGD's. On a GPU that is the
time to launch, Python's own included: the device is waited for in between alone.
"""

import argparse
import random
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.measure import wait
from equilibrate import ESGD

PARTS = ("backward", "step", "zero_grad")


class Loop:
    """A network of small layers and its optimizer; ESGD measures if `due`, or never."""

    def __init__(
        self, make: Callable[..., Any], device: torch.device, layers: int, due: bool = False
    ) -> None:
        torch.manual_seed(0)
        parts = [part for _ in range(layers) for part in (nn.Linear(4, 4), nn.Tanh())]
        self.model, self.input = nn.Sequential(*parts).to(device), torch.ones(2, 4, device=device)
        self.optimizer, self.due = make(self.model.parameters()), due
        self.times: dict[str, list[float]] = {part: [] for part in (*PARTS, "all")}

    def iterate(self) -> list[float]:
        """Return the moments between the parts of one iteration."""
        loss = self.model(self.input).square().mean()
        probes = isinstance(self.optimizer, ESGD)
        backward = partial(self.optimizer.probe, loss, backward=True) if probes else loss.backward
        moments = [time.perf_counter()]
        for part in (backward, self.optimizer.step, self.optimizer.zero_grad):
            part()
            moments.append(time.perf_counter())
        return moments

    def measure(self) -> None:
        """Time one iteration, which measures curvature or does not, as this loop is to."""
        for group in self.optimizer.param_groups if isinstance(self.optimizer, ESGD) else []:
            group["steps_since_probe"] = group["probe_every"] if self.due else 0
        moments = self.iterate()
        for part, start, end in zip(PARTS, moments, moments[1:], strict=False):
            self.times[part].append(end - start)
        self.times["all"].append(moments[-1] - moments[0])


def contestants(device: torch.device, layers: int) -> dict[str, Loop]:
    """Return the loops that are compared, SGD's first."""
    loop = partial(Loop, device=device, layers=layers)
    esgd = partial(ESGD, lr=1e-6, fused=True)
    return {
        "SGD": loop(partial(torch.optim.SGD, lr=1e-6, foreach=True)),
        "AdamW, fused": loop(partial(torch.optim.AdamW, lr=1e-6, fused=True)),
        "ESGD, fused": loop(esgd),
        "ESGD, fused, momentum": loop(partial(esgd, momentum=0.9)),
        "ESGD, fused, probing": loop(esgd, due=True),
    }


def measure(device: torch.device, rounds: int, layers: int = 8) -> dict[str, dict[str, float]]:
    """Return the median microseconds of every part, by contestant."""
    loops, order = contestants(device, layers), random.Random(0)
    for turn in range(rounds + 30):
        # In a new order every time: who comes after a long iteration finds the caches cold.
        for loop in order.sample(list(loops.values()), len(loops)):
            wait(device)
            loop.iterate() if turn < 30 else loop.measure()
    return {
        name: {part: median(found) * 1e6 for part, found in loop.times.items()}
        for name, loop in loops.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--layers", type=int, default=8)
    given = parser.parse_args()
    found = measure(torch.device(given.device), given.rounds, given.layers)
    print("| microseconds of the host | backward | step | zero_grad | all | / SGD | beyond SGD |")
    print("| --- " * 7 + "|")
    for name, times in found.items():
        own, sgd = times["all"], found["SGD"]["all"]
        parts = " | ".join(f"{time:.1f}" for time in times.values())
        print(f"| {name} | {parts} | {own / sgd:.2f} | {own - sgd:.1f} |")


if __name__ == "__main__":
    main()
