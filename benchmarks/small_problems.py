"""The problems on which defaults were measured: a network, its data on the device, its error."""

import gzip
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from equilibrate.study.autoencoder import (
    CURVES_SIZES,
    MNIST_SIZES,
    autoencoder,
    cross_entropy,
    squared_error,
)
from equilibrate.study.curves import curves_like_images
from equilibrate.study.mnist import mnist_images


@dataclass(frozen=True)
class Problem:
    """A network and data, complete; `error` is what is reported, `loss` what is minimised."""

    model: nn.Module
    inputs: Tensor
    targets: Tensor
    batch: int
    epochs: int
    loss: Callable[[Tensor, Tensor], Tensor]
    error: Callable[[Tensor, Tensor], Tensor]

    def batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield one epoch of shuffled batches."""
        generator = torch.Generator(self.inputs.device).manual_seed(seed)
        order = torch.randperm(len(self.inputs), generator=generator, device=self.inputs.device)
        for chosen in order.split(self.batch):
            if len(chosen) == self.batch:
                yield self.inputs[chosen], self.targets[chosen]


def _autoencoder(images: Tensor, sizes: tuple[int, ...], epochs: int, seed: int) -> Problem:
    model = autoencoder(sizes, seed=seed, device=images.device)
    return Problem(model, images, images, 200, epochs, cross_entropy, squared_error)


def mnist(folder: Path, device: str, seed: int) -> Problem:
    """The paper's MNIST auto-encoder."""
    return _autoencoder(mnist_images(folder).to(device), MNIST_SIZES, 60, seed)


def curves(folder: Path, device: str, seed: int) -> Problem:
    """The paper's CURVES auto-encoder, on CURVES-like data; the images are kept in `folder`."""
    file = folder / "curves-like.pt"
    if not file.exists():
        torch.save(curves_like_images(20_000, seed=0), file)
    return _autoencoder(torch.load(file, weights_only=True).to(device), CURVES_SIZES, 200, seed)


def short_curves(folder: Path, device: str, seed: int) -> Problem:
    """The same for 60 epochs: what a CPU trains in a minute or two."""
    return replace(curves(folder, device, seed), epochs=60)


def convolution(folder: Path, device: str, seed: int) -> Problem:
    """A small GELU network with batch normalisation, classifying digits."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.GELU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.BatchNorm2d(32),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(32 * 36, 10),
    ).to(device)
    images = mnist_images(folder).to(device)
    packed = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())
    labels = torch.frombuffer(bytearray(packed), dtype=torch.uint8, offset=8).long().to(device)
    loss = functional.cross_entropy
    return Problem(model, images, labels, 200, 4, loss, loss)


class _Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(30 * x)


def field(folder: Path, device: str, seed: int) -> Problem:
    """A sine network (Sitzmann et al. 2020) fitted to a generated 64 x 64 image."""
    torch.manual_seed(seed)
    side = torch.linspace(-1, 1, 64)
    grid = torch.cartesian_prod(side, side)
    image = torch.sin(9 * grid[:, 0] * grid[:, 1]) * torch.exp(-grid.square().sum(1)) + 0.3 * (
        torch.sin(20 * grid).sum(1)
    )
    widths = [2, 64, 64, 64, 1]
    layers: list[nn.Module] = []
    for i in range(4):
        linear = nn.Linear(widths[i], widths[i + 1])
        bound = 1 / 2 if i == 0 else math.sqrt(6 / widths[i]) / 30
        nn.init.uniform_(linear.weight, -bound, bound)
        layers += [linear, _Sine()] if i < 3 else [linear]
    targets = image[:, None].to(device)
    loss = functional.mse_loss
    return Problem(
        nn.Sequential(*layers).to(device), grid.to(device), targets, 512, 400, loss, loss
    )


PROBLEMS = {
    "mnist": mnist,
    "curves": curves,
    "convolution": convolution,
    "field": field,
    "short_curves": short_curves,
}
AUTOENCODERS = ("mnist", "curves")  # trained as stacks
