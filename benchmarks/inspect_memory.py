"""The memory of an inspection, or of a monitor, in vectors of the size of the model.

    python -m benchmarks.inspect_memory --million 100

Peaks of resident memory are read from Linux' /proc, in a process whose allocator gives freed memory
back at once (MALLOC_MMAP_THRESHOLD_) and which has inspected a tiny model before, so that libraries
are loaded. First one gradient is computed, the peak of which is what any training needs; then the
model is inspected. The difference, over four bytes a parameter, is printed.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from equilibrate.inspect.findings import Budget
from equilibrate.inspect.measure import inspect
from equilibrate.inspect.subject import Subject
from equilibrate.monitor import Monitor
from equilibrate.study.problem import Problem
from equilibrate.study.progress import Progress

WIDTH = 768


class Language(nn.Module):
    """An embedding (a third of the parameters, also the output's weights), residual blocks."""

    def __init__(self, million: float) -> None:
        super().__init__()
        count = million * 1e6
        self.embedding = nn.Embedding(int(count * 0.31 / WIDTH), WIDTH)
        blocks = 12
        hidden = int(count * 0.69 / blocks / (2 * WIDTH))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, hidden, bias=False), nn.Tanh(),
                          nn.Linear(hidden, WIDTH, bias=False)) for _ in range(blocks)
        )  # fmt: skip

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = x + block(x)
        return x @ self.embedding.weight.mT


def _problem(million: float) -> Problem:
    def data() -> tuple[Tensor, Tensor]:
        tokens = torch.arange(16) % 50
        return tokens, tokens.roll(1)

    return Problem("language", lambda seed: Language(million), data, nn.functional.cross_entropy,
                   batch_size=8)  # fmt: skip


def _memory(field: str) -> int:
    """Bytes of VmRSS (now) or VmHWM (the peak since it was reset)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def measure(million: float, budget: Budget, *, monitor: bool = False) -> tuple[int, float, float]:
    """Return the parameters, the vectors beyond a gradient's peak, and beyond model and gradient.

    Computing the gradient itself may take more than its size: here the embedding's, in two parts.
    """
    subject = Subject(_problem(million), seed=0, device=torch.device("cpu"), batches=budget.batches)
    model = _memory("VmRSS")
    _reset_peak()
    gradients = torch.autograd.grad(subject.loss(0), subject.parameters)
    with_gradient = _memory("VmHWM")
    del gradients
    _reset_peak()
    if monitor:
        optimizer = torch.optim.SGD(subject.parameters)
        Monitor(subject.model, optimizer, lambda record: None, steps=3, layer_spectra=2)(
            subject.loss(0)
        )
    else:
        inspect(subject, budget, quick=True, progress=Progress("inspect", budget.products))
    vector = 4 * subject.size
    peak = _memory("VmHWM")
    return subject.size, (peak - with_gradient) / vector, (peak - model) / vector - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", type=float, default=100.0, help="parameters (default: 100)")
    parser.add_argument("--steps", type=int, default=3, help="of each recursion (default: 3)")
    parser.add_argument("--monitor", action="store_true", help="a monitor's measurement instead")
    arguments = parser.parse_args()
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        command = [sys.executable, "-m", "benchmarks.inspect_memory", *sys.argv[1:]]
        sys.exit(
            subprocess.run(command, env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}).returncode
        )
    measure(0.2, Budget(2, 4, 3, 1, 2, 3, 3), monitor=arguments.monitor)
    budget = Budget(2, 4, arguments.steps, 1, 2, arguments.steps, arguments.steps)
    size, computing, holding = measure(arguments.million, budget, monitor=arguments.monitor)
    print(f"{size:,} parameters: {computing:.2f} vectors beyond what computing a gradient takes, ")
    print(f"{holding:.2f} beyond the model and a gradient that is held")


if __name__ == "__main__":
    main()
