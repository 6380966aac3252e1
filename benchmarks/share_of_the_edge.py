"""Which share of the edge of stability trains small networks without a failure.

    python -m benchmarks.share_of_the_edge
    python -m benchmarks.share_of_the_edge --first 10 --shares 1/3
    python -m benchmarks.share_of_the_edge --networks "ReLU, 6-64-64-1" --update-limit 1

`suggest_learning_rate` measures on one batch where a step turns unstable; each run trains at a
share of that, ESGD as shipped otherwise. Heavy-ball momentum trains at shares of Nesterov's edge
as well, which is smaller than its own. A run fails where its error in the end is not below that
of the best constant output, or not a number. Small networks on generated data, one CPU.
"""

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from equilibrate import ESGD
from equilibrate.monitor import suggest_learning_rate

SHARES = {"1": 1.0, "1/2": 1 / 2, "1/3": 1 / 3, "1/4": 1 / 4}
HEAVY, NESTEROV = {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}
KINDS = {  # the momentum that trains, and the one whose edge is shared
    "none": ({}, {}),
    "Nesterov 0.9": (NESTEROV, NESTEROV),
    "heavy ball 0.9": (HEAVY, HEAVY),
    "heavy ball 0.9, shares of Nesterov's edge": (HEAVY, NESTEROV),
}


@dataclass(frozen=True)
class Small:
    """A network of these widths, what it learns, and for how long."""

    widths: tuple[int, ...]
    activation: Callable[[], nn.Module]
    data: Callable[[], tuple[Tensor, Tensor]]
    batch: int = 64
    updates: int = 300

    def network(self) -> nn.Module:
        layers: list[nn.Module] = []
        for before, after in zip(self.widths, self.widths[1:], strict=False):
            layers += [nn.Linear(before, after), self.activation()]
        return nn.Sequential(*layers[:-1])


def _sines() -> tuple[Tensor, Tensor]:
    x = torch.randn(256, 6, generator=torch.Generator().manual_seed(0))
    return x, torch.sin(x).sum(1, keepdim=True)


def _wave() -> tuple[Tensor, Tensor]:
    x = torch.linspace(-1, 1, 2000).unsqueeze(1)
    return x, torch.sin(3 * x)


PROBLEMS = {
    "tanh, 6-32-1": Small((6, 32, 1), nn.Tanh, _sines),
    "tanh, 6-64-64-1": Small((6, 64, 64, 1), nn.Tanh, _sines),
    "ReLU, 6-64-64-1": Small((6, 64, 64, 1), nn.ReLU, _sines),
    "the wave of start.md": Small((1, 64, 64, 1), nn.Tanh, _wave, batch=100, updates=600),
}


def error(
    problem: Small, share: float, kind: str, seed: int, update_limit: float | None = None
) -> float:
    """Train at a share of the edge; return the error as a share of the best constant's."""
    trains, shared = KINDS[kind]
    torch.manual_seed(seed)
    model, (x, y) = problem.network(), problem.data()
    batch = torch.randperm(len(x))[: problem.batch]
    loss = mse_loss(model(x[batch]), y[batch])
    edge = suggest_learning_rate(loss, model.parameters(), **shared, seed=seed).edge
    optimizer = ESGD(
        model.parameters(), lr=share * edge, **trains, update_limit=update_limit, seed=seed
    )
    for _ in range(problem.updates):
        batch = torch.randperm(len(x))[: problem.batch]
        loss = mse_loss(model(x[batch]), y[batch])
        if not loss.isfinite():
            return math.inf
        optimizer.probe(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    end = float(mse_loss(model(x), y).detach() / y.var(correction=0))
    return end if math.isfinite(end) else math.inf


def failures(errors: list[float]) -> int:
    """Return how many runs are no better than the best constant output."""
    return sum(not e < 1 for e in errors)


def cell(errors: list[float]) -> str:
    """Return the median error and the worst, or how many runs failed."""
    failed = failures(errors)
    worst = f"{failed} of {len(errors)} failed" if failed else f"{max(errors):.2g}"
    return f"{statistics.median(errors):.2g} ({worst})"


def main() -> None:
    """Print a table, a line for each network and kind of momentum, then the failures in all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--shares", nargs="*", choices=SHARES, default=list(SHARES))
    parser.add_argument("--networks", nargs="*", default=list(PROBLEMS), metavar="NAME")
    parser.add_argument("--update-limit", type=float, help="ESGD's, none as shipped")
    asked = parser.parse_args()
    print("| network | momentum | " + " | ".join(asked.shares) + " |")
    print("| --- " * (2 + len(asked.shares)) + "|")
    seeds = range(asked.first, asked.first + asked.seeds)
    ends: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name in asked.networks:
        for kind in KINDS:
            cells = []
            for said in asked.shares:
                runs = [error(PROBLEMS[name], SHARES[said], kind, seed, asked.update_limit)
                        for seed in seeds]  # fmt: skip
                ends[kind, said] += runs
                cells.append(cell(runs))
            print(f"| {name} | {kind} | " + " | ".join(cells) + " |", flush=True)
    for kind in KINDS:
        cells = [f"{failures(runs)} of {len(runs)}" for (k, _), runs in ends.items() if k == kind]
        print(f"| failed in all | {kind} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
