"""The models that the speed benchmarks train, with a batch of made-up data each.

Speed does not depend on what the data are, so none are read. Sizes are for a GPU; `small` are the
same models with smaller batches, or fewer layers, for a CPU.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from equilibrate.study.autoencoder import MNIST_SIZES, autoencoder, cross_entropy


@dataclass(frozen=True)
class Problem:
    """A model on a device with its loss on a share of one batch."""

    model: nn.Module
    loss: Callable[[float], Tensor]
    attends: bool = False

    def parameters(self) -> list[nn.Parameter]:
        return list(self.model.parameters())

    def count(self) -> int:
        return sum(p.numel() for p in self.model.parameters())


def _part(batch: Tensor, share: float) -> Tensor:
    """Return a share of a batch; one that is no whole number of cases would be called wrongly."""
    cases = share * len(batch)
    if not cases.is_integer():
        raise ValueError(f"A batch of {len(batch)} has no share of {share}; take another batch.")
    return batch[: int(cases)]


def autoencoder_problem(device: torch.device, small: bool) -> Problem:
    """The paper's MNIST auto-encoder, batch 200 in both sizes."""
    model = autoencoder(MNIST_SIZES, seed=0).to(device)
    batch = torch.rand(200, 784, device=device)
    return Problem(
        model, lambda share: cross_entropy(model(_part(batch, share)), _part(batch, share))
    )


class Sine(nn.Module):
    """A layer of a sine network (Sitzmann et al. 2020)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(30 * self.linear(x))


def field_problem(device: torch.device, small: bool) -> Problem:
    """An image as a function of the place: three sine layers of 256, squared error."""
    layers = [Sine(2, 256), Sine(256, 256), Sine(256, 256), nn.Linear(256, 3)]
    model = nn.Sequential(*layers).to(device)
    places = torch.rand(2048 if small else 65536, 2, device=device)
    colours = torch.rand(len(places), 3, device=device)

    def loss(share: float) -> Tensor:
        return (model(_part(places, share)) - _part(colours, share)).square().mean()

    return Problem(model, loss)


class Block(nn.Module):
    """Two convolutions around which the input is carried (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        same = stride == 1 and inputs == outputs
        across = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.across = nn.Identity() if same else nn.Sequential(across, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(inner)) + self.across(x))


def resnet_problem(device: torch.device, small: bool) -> Problem:
    """ResNet-18 as used for 32x32 images: no pooling at the start; batch 128, small 4."""
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    widths += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    start = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    model = nn.Sequential(*start, *(Block(*w) for w in widths), *end).to(device)
    images = torch.rand(4 if small else 128, 3, 32, 32, device=device)
    labels = torch.randint(10, (len(images),), device=device)

    def loss(share: float) -> Tensor:
        return functional.cross_entropy(model(_part(images, share)), _part(labels, share))

    return Problem(model, loss)


class Layer(nn.Module):
    """One layer of a transformer as in GPT-2: attention, then a network of four times the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.queries_keys_values(x).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.join(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norms[0](x))
        return x + self.narrow(functional.gelu(self.widen(self.norms[1](x)), approximate="tanh"))


class Transformer(nn.Module):
    """A language model of GPT-2's shape; input and output share the embedding."""

    def __init__(self, words: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return self.norm(self.layers(x)) @ self.words.weight.T


def transformer_problem(
    device: torch.device, small: bool, *, width: int = 768, layers: int = 12, batch: int = 4
) -> Problem:
    """GPT-2 with 124 million parameters, 4 x 1024 tokens; small: 4 layers of 128, 4 x 64 tokens."""
    words, length = (2000, 64) if small else (50257, 1024)
    if small:
        width, layers = 128, 4
    model = Transformer(words, length, width, max(1, width // 64), layers).to(device)
    tokens = torch.randint(words, (batch, length + 1), device=device)

    def loss(share: float) -> Tensor:
        part = _part(tokens, share)
        guess = model(part[:, :-1]).flatten(0, 1)
        return functional.cross_entropy(guess, part[:, 1:].flatten())

    return Problem(model, loss, attends=True)


MODELS: dict[str, Callable[..., Problem]] = {
    "auto-encoder": autoencoder_problem,
    "sine field": field_problem,
    "ResNet-18": resnet_problem,
    "transformer": transformer_problem,
}
