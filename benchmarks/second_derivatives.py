"""From which size on our second derivatives are faster than torch's, where torch's are right.

    OMP_NUM_THREADS=1 python -m benchmarks.second_derivatives

A gradient with its graph and one product with the Hessian, of twenty operations in a row on
matrices of sixteen columns: the processor time of ours over that of torch's, by elements.
"""

import argparse
from collections.abc import Callable
from statistics import median
from unittest.mock import patch

import torch
from torch import nn

from benchmarks.measure import interleaved
from equilibrate import LossHessian, draw

OPERATIONS: dict[str, Callable[[], nn.Module]] = {
    "layer norm": lambda: nn.LayerNorm(16),
    "batch norm": lambda: nn.BatchNorm1d(16),
    "GELU": nn.GELU,
    "log-softmax": lambda: nn.LogSoftmax(1),
}
SIZES = [2**power for power in (8, 10, 12, 14, 15, 16, 18)]
_PLACE = "equilibrate.curvature.second_derivatives."


def ratio(make: Callable[[], nn.Module], elements: int, seconds: float) -> float:
    """Return the median time of ours over that of torch's."""
    torch.manual_seed(0)
    network, x = nn.Sequential(*(make() for _ in range(20))), torch.randn(elements // 16, 16)
    parameters = [nn.Parameter(torch.ones_like(x)), *network.parameters()]
    vectors = draw("rademacher", parameters)

    def product() -> None:
        loss = network(x * parameters[0]).square().mean()
        LossHessian(loss, parameters)(vectors, last=True)

    def ours() -> None:
        with patch(f"{_PLACE}_FROM", 0):
            product()

    def torchs() -> None:
        with patch(f"{_PLACE}REPLACE", {}):
            product()

    runs = {"ours": ours, "torch's": torchs}
    for run in runs.values():
        run()
    found = interleaved(runs, torch.device("cpu"), seconds, clock="process")
    return median(found["ours"]) / median(found["torch's"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each cell")
    given = parser.parse_args()
    print("| elements | " + " | ".join(f"{size:,}" for size in SIZES) + " |")
    print("| --- " * (1 + len(SIZES)) + "|")
    for name, make in OPERATIONS.items():
        cells = [f"{ratio(make, size, given.seconds):.2f}" for size in SIZES]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
