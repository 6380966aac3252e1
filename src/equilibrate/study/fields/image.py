"""A picture drawn by formulas: smooth shades, waves of several frequencies, shapes with hard edges.

Every instance is another picture of the same kind. A picture of more pixels holds finer waves: the
finest has seven pixels to a period.
"""

import math

import torch
from torch import Tensor

_WAVES = 6
_SHAPES = 5
_PIXELS_PER_PERIOD = 7


def grid(resolution: int) -> Tensor:
    """Return the places of the pixels: [resolution^2, 2] in the square from -1 to 1, row by row.

    Example:
        >>> grid(2)
        tensor([[-0.5000, -0.5000],
                [-0.5000,  0.5000],
                [ 0.5000, -0.5000],
                [ 0.5000,  0.5000]])
    """
    line = (torch.arange(resolution) + 0.5) * (2 / resolution) - 1
    return torch.cartesian_prod(line, line)


def image(places: Tensor, resolution: int, instance: int = 0) -> Tensor:
    """Return the brightness at places [n, 2], [n, 1], from -1 (black) to 1 (white).

    Args:
        places: in the square from -1 to 1.
        resolution: pixels on a side of the picture, which bounds its finest wave.
        instance: names the picture; torch's own generator is not moved.

    Example:
        >>> picture = image(grid(64), 64, instance=3)
        >>> picture.shape, float(picture.min()), float(picture.max())
        (torch.Size([4096, 1]), -1.0, 1.0)
    """
    generator = torch.Generator().manual_seed(instance)
    finest = resolution / _PIXELS_PER_PERIOD / 2  # periods in a unit of length
    shades = _waves(places, generator, finest)
    for _ in range(_SHAPES):
        inside = _shape(places, generator)
        shades = torch.where(inside, 0.3 * shades + _uniform(generator, -1.5, 1.5), shades)
    low, high = shades.min(), shades.max()
    return (2 * (shades - low) / (high - low) - 1).unsqueeze(1)


def _waves(places: Tensor, generator: torch.Generator, finest: float) -> Tensor:
    """Sum waves from one in the whole square to the finest; the finer, the fainter."""
    total = torch.zeros(len(places))
    for number in range(_WAVES):
        frequency = 0.5 * (finest / 0.5) ** (number / (_WAVES - 1))
        angle, phase = (_uniform(generator, 0.0, 2 * math.pi) for _ in range(2))
        along = places[:, 0] * math.cos(angle) + places[:, 1] * math.sin(angle)
        total += (2 * math.pi * frequency * along + phase).sin() * frequency**-0.35
    return total


def _shape(places: Tensor, generator: torch.Generator) -> Tensor:
    """Tell which places lie in a disc or a turned box, each as likely."""
    centre = torch.tensor([_uniform(generator, -0.7, 0.7) for _ in range(2)])
    angle, size, slim = (_uniform(generator, *ends) for ends in ((0, 3.2), (0.12, 0.4), (0.3, 1)))
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    local = (places - centre) @ turn / torch.tensor([size, size * slim])
    round_one = _uniform(generator, 0, 1) < 0.5
    return local.norm(dim=1) < 1 if round_one else local.abs().amax(1) < 1


def _uniform(generator: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator))
