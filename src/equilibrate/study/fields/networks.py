"""The four kinds of coordinate networks that neural fields are made of.

| name     | a unit                     | input             | source                             |
| -------- | -------------------------- | ----------------- | ---------------------------------- |
| sine     | sin(30 z)                  | place             | SIREN, Sitzmann et al. 2020        |
| gaussian | exp(-z^2 / (2 0.1^2))      | place             | Ramasinghe and Lucey 2022          |
| wavelet  | cos(10 z) exp(-(5 z)^2)    | place             | WIRE, Saragadam et al. 2023, real  |
| relu     | max(0, z)                  | sines and cosines | positional encoding, NeRF          |

z = W x + b. Every network ends in a linear layer. No layer holds a buffer, so that networks can be
stacked (`stack`).
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

_OMEGA = 30.0
_WIDTH = 0.1
_WAVE, _SPREAD = 10.0, 5.0


class Sine(nn.Module):
    """sin(30 z)."""

    def forward(self, z: Tensor) -> Tensor:
        """Return the unit's output."""
        return (_OMEGA * z).sin()


class Gaussian(nn.Module):
    """exp(-z^2 / (2 0.1^2))."""

    def forward(self, z: Tensor) -> Tensor:
        """Return the unit's output."""
        return (z.square() * (-0.5 / _WIDTH**2)).exp()


class Wavelet(nn.Module):
    """cos(10 z) exp(-(5 z)^2): the real part of WIRE's wavelet."""

    def forward(self, z: Tensor) -> Tensor:
        """Return the unit's output."""
        return (_WAVE * z).cos() * (-(_SPREAD * z).square()).exp()


class Encoding(nn.Module):
    """x, sin(2^k pi x), cos(2^k pi x) for k below `octaves`, of every coordinate."""

    def __init__(self, octaves: int) -> None:
        super().__init__()
        self.octaves = octaves

    def forward(self, x: Tensor) -> Tensor:
        """Return the coordinates and their waves."""
        waves = [x * (math.pi * 2**k) for k in range(self.octaves)]
        return torch.cat([x, *(w.sin() for w in waves), *(w.cos() for w in waves)], -1)

    def extra_repr(self) -> str:
        """Show the setting where a network is printed."""
        return f"octaves={self.octaves}"


def sine(width: int, depth: int, resolution: int) -> nn.Sequential:
    """SIREN: U(-1/2, 1/2) first, then U(-s, s) with s = sqrt(6 / fan-in) / 30.

    Example:
        >>> sine(64, 3, 64)(torch.zeros(5, 2)).shape
        torch.Size([5, 1])
    """
    network = _chain(2, width, depth, Sine)
    linears = [layer for layer in network if isinstance(layer, nn.Linear)]
    for number, layer in enumerate(linears):
        fan_in = layer.in_features
        bound = math.sqrt(6 / fan_in) / _OMEGA if number else 1 / fan_in
        nn.init.uniform_(layer.weight, -bound, bound)
    return network


def gaussian(width: int, depth: int, resolution: int) -> nn.Sequential:
    """Gaussian units, with torch's own initialisation as in their paper."""
    return _chain(2, width, depth, Gaussian)


def wavelet(width: int, depth: int, resolution: int) -> nn.Sequential:
    """Wavelet units, with torch's own initialisation as in their paper."""
    return _chain(2, width, depth, Wavelet)


def relu(width: int, depth: int, resolution: int) -> nn.Sequential:
    """ReLU behind a positional encoding up to the frequency of the pixels; He's initialisation."""
    octaves = round(math.log2(resolution)) - 1
    network = _chain(2 + 4 * octaves, width, depth, nn.ReLU)
    for layer in network:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return nn.Sequential(Encoding(octaves), *network)


def _chain(inputs: int, width: int, depth: int, unit: type[nn.Module]) -> nn.Sequential:
    sizes = [inputs, *[width] * depth]
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), unit()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


NETWORKS: dict[str, Callable[[int, int, int], nn.Sequential]] = {
    "sine": sine,
    "gaussian": gaussian,
    "wavelet": wavelet,
    "relu": relu,
}
"""By name; called with width, depth and the resolution of what is learned."""
