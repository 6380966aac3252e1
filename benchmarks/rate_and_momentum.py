"""Which learning rates train small networks, with and without momentum, beside the suggested ones.

    python -m benchmarks.rate_and_momentum

Each network is trained by ESGD as shipped, and with an `update_limit`, for 20 passes over 3,000
made-up cases; told is the worst of three seeds' mean losses over the last pass. Nothing here was
used to choose a default.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from equilibrate import ESGD
from equilibrate.monitor import suggest_learning_rate

RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
NESTEROV = {"momentum": 0.9, "nesterov": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "no momentum": {},
    "no momentum, update_limit 1": {"update_limit": 1.0},
    "Nesterov, 0.9": NESTEROV,
    "Nesterov, 0.9, update_limit 1": NESTEROV | {"update_limit": 1.0},
    "Nesterov, 0.9, update_limit 0.1": NESTEROV | {"update_limit": 0.1},
}
SEEDS = range(3)
BATCH, EPOCHS = 100, 20


@dataclass(frozen=True)
class Small:
    """A network of three hidden layers on made-up data."""

    activation: type[nn.Module]
    outputs: int
    targets: Callable[[Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]

    def network(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for inputs in (10, 64, 64):
            layers += [nn.Linear(inputs, 64), self.activation()]
        return nn.Sequential(*layers, nn.Linear(64, self.outputs))

    def data(self) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(3000, 10, generator=torch.Generator().manual_seed(3))
        return inputs, self.targets(inputs)


def _waves(inputs: Tensor) -> Tensor:
    directions = torch.randn(10, 4, generator=torch.Generator().manual_seed(4))
    return torch.sin(2 * inputs @ directions).sum(1)


def _slow(inputs: Tensor) -> Tensor:
    directions = torch.randn(10, 4, generator=torch.Generator().manual_seed(4))
    return torch.tanh(inputs @ directions / 3).sum(1, keepdim=True)


PROBLEMS = {
    "classes by fast waves, GELU": Small(
        nn.GELU, 2, lambda x: _waves(x).gt(0).long(), functional.cross_entropy
    ),
    "classes by a smooth border, GELU": Small(
        nn.GELU, 2, lambda x: _slow(x)[:, 0].gt(0).long(), functional.cross_entropy
    ),
    "a smooth function, tanh": Small(nn.Tanh, 1, _slow, functional.mse_loss),
}


def trained(problem: Small, rate: float, settings: dict[str, Any], seed: int) -> float:
    """Return the mean loss over the last pass."""
    (inputs, targets), network = problem.data(), problem.network(seed)
    optimizer = ESGD(network.parameters(), lr=rate, **settings)
    order = torch.Generator().manual_seed(seed)
    total = 0.0
    for _ in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(inputs), generator=order).split(BATCH):
            loss = problem.loss(network(inputs[batch]), targets[batch])
            if not loss.isfinite():
                return float("inf")
            optimizer.probe(loss)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item() * len(batch) / len(inputs)
    return total


def suggested(problem: Small, settings: dict[str, Any]) -> float:
    """Return the median of the suggestions before training; a limit on updates changes none."""
    asked = {name: value for name, value in settings.items() if name != "update_limit"}
    (inputs, targets), found = problem.data(), []
    for seed in SEEDS:
        network = problem.network(seed)
        loss = problem.loss(network(inputs[:BATCH]), targets[:BATCH])
        found.append(suggest_learning_rate(loss, network.parameters(), **asked).lr)
    return median(found)


def row(name: str, kind: str) -> str:
    """Return the worst of the seeds at every rate, and what was suggested."""
    problem, settings = PROBLEMS[name], SETTINGS[kind]
    ends = [max(trained(problem, rate, settings, seed) for seed in SEEDS) for rate in RATES]
    cells = ["died" if end == float("inf") else f"{end:.3g}" for end in ends]
    rate = f"{suggested(problem, settings):.2g}"
    return f"| {name} | {kind} | {rate} | {' | '.join(cells)} |"


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print(f"| network | | suggested | {' | '.join(f'{rate:g}' for rate in RATES)} |")
    print("| --- " * (3 + len(RATES)) + "|")
    for name in PROBLEMS:
        for kind in SETTINGS:
            print(row(name, kind), flush=True)


if __name__ == "__main__":
    main()
