"""The problems on which defaults were measured, as `equilibrate compare` takes them."""

import gzip
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from equilibrate.study import Problem
from equilibrate.study.mnist import mnist_images
from equilibrate.study.problems import BUILT_IN


def convolution(folder: Path | None) -> Problem:
    """A small GELU network with batch normalisation, classifying digits."""

    def model(seed: int) -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 16, 3, stride=2),
            nn.BatchNorm2d(16),
            nn.GELU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.BatchNorm2d(32),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(32 * 36, 10),
        )

    def data() -> tuple[Tensor, Tensor]:
        if folder is None:
            raise SystemExit("name the folder of the MNIST files: --data FOLDER")
        packed = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())
        labels = torch.frombuffer(bytearray(packed), dtype=torch.uint8, offset=8).long()
        return mnist_images(folder), labels

    return Problem("convolution", model, data, functional.cross_entropy)


class _Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(30 * x)


def _sine_network(seed: int) -> nn.Module:
    widths = [2, 64, 64, 64, 1]
    layers: list[nn.Module] = []
    for i in range(4):
        linear = nn.Linear(widths[i], widths[i + 1])
        bound = 1 / 2 if i == 0 else math.sqrt(6 / widths[i]) / 30
        nn.init.uniform_(linear.weight, -bound, bound)
        layers += [linear, _Sine()] if i < 3 else [linear]
    return nn.Sequential(*layers)


def field(folder: Path | None) -> Problem:
    """A sine network (Sitzmann et al. 2020) fitted to a generated 64 x 64 image."""

    def data() -> tuple[Tensor, Tensor]:
        side = torch.linspace(-1, 1, 64)
        grid = torch.cartesian_prod(side, side)
        image = torch.sin(9 * grid[:, 0] * grid[:, 1]) * torch.exp(-grid.square().sum(1))
        return grid, (image + 0.3 * torch.sin(20 * grid).sum(1))[:, None]

    return Problem("field", _sine_network, data, functional.mse_loss, batch_size=512)


@dataclass(frozen=True)
class Task:
    """A problem, how long it trains, and whether its trials are stacked."""

    problem: Callable[[Path | None], Problem]
    epochs: int
    stacked: bool = False


TASKS = {
    "mnist": Task(BUILT_IN["mnist"], 60, stacked=True),
    "curves": Task(BUILT_IN["curves-like"], 200, stacked=True),
    "convolution": Task(convolution, 4),
    "field": Task(field, 400),
    "short_curves": Task(BUILT_IN["curves-like"], 60),  # what a CPU trains in a minute or two
}
