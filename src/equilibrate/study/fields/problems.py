"""Neural fields as problems: `image-64-sine` is a picture of 64 x 64 pixels in a sine network.

The name is subject-resolution-network, with `image` or `distance` for the subject, 64, 128 or 256
pixels on a side, and one of `networks.NETWORKS`. Training minimises the squared error at the pixels
of a batch. Reported is the mean squared error over all pixels as a share of the squared peak:

    PSNR = -10 log10(error), in dB,

with a peak of 2 for a picture (black is -1, white is 1) and of 1, the half side of the square, for
a distance.

The sizes are two regimes: the network of a 64 x 64 field has twice as many parameters as the field
has pixels and can interpolate it; those of the larger ones have half as many and must compress.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

from torch import Tensor, nn
from torch.nn.functional import mse_loss

from equilibrate.study.fields.distance import outline, signed_distance
from equilibrate.study.fields.image import grid, image
from equilibrate.study.fields.networks import NETWORKS
from equilibrate.study.problem import Problem

SUBJECTS = ("image", "distance")

# Pixels on a side: units in a layer, hidden layers, pixels in a batch (8 batches an epoch).
SIZES = {64: (64, 3, 512), 128: (64, 3, 2048), 256: (128, 3, 8192)}


def field_problem(subject: str, resolution: int, network: str, instance: int = 0) -> Problem:
    """Return the problem of one subject's instance; instances differ in what is learned.

    Example:
        >>> problem = field_problem("image", 64, "sine", instance=2)
        >>> problem.name, problem.updates_per_epoch
        ('image-64-sine #2', 8)
    """
    width, depth, batch = SIZES[resolution]

    def model(seed: int) -> nn.Module:
        return NETWORKS[network](width, depth, resolution)

    def data() -> tuple[Tensor, Tensor]:
        places = grid(resolution)
        return places, subject_at(places, subject, resolution, instance)

    name = field_name(subject, resolution, network)
    error = image_error if subject == "image" else mse_loss
    return Problem(f"{name} #{instance}", model, data, mse_loss, error, batch)


def subject_at(places: Tensor, subject: str, resolution: int, instance: int) -> Tensor:
    """Return what is to be learned at some places."""
    if subject == "image":
        return image(places, resolution, instance)
    return signed_distance(places, outline(instance))


def image_error(output: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error over the squared peak, 2^2."""
    return mse_loss(output, targets) / 4


def psnr(error: float) -> float:
    """Return an error of these problems in dB.

    Example:
        >>> psnr(1e-3)
        30.0
    """
    return -10 * math.log10(error) if error > 0 else math.inf


def field_name(subject: str, resolution: int, network: str) -> str:
    """Return the name of a field: its subject, resolution and network."""
    return f"{subject}-{resolution}-{network}"


def _built_in(kind: tuple[str, int, str], folder: Path | None) -> Problem:
    return field_problem(*kind)


FIELDS: dict[str, Callable[[Path | None], Problem]] = {
    field_name(*kind): partial(_built_in, kind) for kind in product(SUBJECTS, SIZES, NETWORKS)
}
"""Instance 0 of every field, by name."""
