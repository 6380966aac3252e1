"""The built-in problems: the deep auto-encoders of the paper's section 6, and tasks of today.

| name                  | images                        | code layer       |
| --------------------- | ----------------------------- | ---------------- |
| mnist                 | 60,000 MNIST training images  | sigmoid (paper)  |
| mnist-linear          | the same                      | linear (Martens) |
| curves-like           | 20,000 generated, seed 0      | sigmoid          |
| curves-like-linear    | the same                      | linear           |
| curves                | 20,000 of the original file   | sigmoid          |
| curves-linear         | the same                      | linear           |
| mnist-14              | 20,000 MNIST images, halved   | sigmoid          |
| mnist-linear-14       | the same                      | linear           |
| curves-like-14        | curves-like ones, halved      | sigmoid          |
| curves-like-linear-14 | the same                      | linear           |

The last four have 14 x 14 pixels, the mean of 2 x 2, and a network a CPU trains in minutes. All of
these train on the cross-entropy and report the squared error, both summed over the pixels,
in batches of 200. Errors on the generated images must not stand beside published CURVES errors, so
the name of their problem says 'CURVES-like'.

The others are neural fields (`fields.problems`: image-64-sine and the like), `decays` (an ODE with
rates from 1e-3 to 1e3; `decays-log` learns their logarithms, `decays-batches` in batches) and
`characters` (a small transformer on generated text).
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from equilibrate.study.autoencoder import (
    CURVES_SIZES,
    MNIST_SIZES,
    autoencoder,
    cross_entropy,
    squared_error,
)
from equilibrate.study.characters import characters_problem
from equilibrate.study.curves import curves_like_images
from equilibrate.study.decays import decays_problem
from equilibrate.study.digs3pts import digs3pts_images
from equilibrate.study.fields.problems import FIELDS
from equilibrate.study.mnist import mnist_images
from equilibrate.study.problem import Problem

_BATCH = 200
_CURVES_LIKE = 20_000  # as many as the original has for training
_SMALL_SIZES = (196, 256, 128, 64, 16, 64, 128, 256, 196)

Images = Callable[[Path | None], Tensor]


def reconstruction(
    name: str,
    sizes: Sequence[int],
    images: Images,
    code: Literal["sigmoid", "linear"],
    folder: Path | None,
) -> Problem:
    """An auto-encoder of images; they are loaded from the folder when first asked for.

    Example:
        >>> problem = BUILT_IN["curves-like"](None)
        >>> problem.name
        'CURVES-like'
        >>> sum(parameter.numel() for parameter in problem.network(0).parameters())
        842340
    """

    def model(seed: int) -> nn.Module:
        return autoencoder(sizes, code=code, seed=seed)

    def data() -> tuple[Tensor, Tensor]:
        inputs = images(folder)
        return inputs, inputs  # one tensor: the target is the input

    label = name if code == "sigmoid" else f"{name}, linear code"
    return Problem(label, model, data, cross_entropy, squared_error, _BATCH)


def _generated(_folder: Path | None) -> Tensor:
    # Not cached on disk: drawing them takes a second or two.
    return curves_like_images(_CURVES_LIKE, seed=0)


def _halved(images: Images) -> Images:
    """Return a source of the first 20,000 images at half the resolution."""

    def small(folder: Path | None) -> Tensor:
        whole = images(folder)[:_CURVES_LIKE].view(-1, 1, 28, 28)
        return avg_pool2d(whole, 2).flatten(1)

    return small


def generated_curves(instance: int) -> Problem:
    """The auto-encoder of another set of CURVES-like images; instance 0 is `curves-like`."""

    def images(_folder: Path | None) -> Tensor:
        return curves_like_images(_CURVES_LIKE, seed=instance)

    return reconstruction(f"CURVES-like #{instance}", CURVES_SIZES, images, "sigmoid", None)


def small_curves(instance: int) -> Problem:
    """The small auto-encoder of another set; instance 0 is `curves-like-14`."""
    images = _halved(lambda _folder: curves_like_images(_CURVES_LIKE, seed=instance))
    return reconstruction(
        f"CURVES-like, 14 x 14 #{instance}", _SMALL_SIZES, images, "sigmoid", None
    )


_MNIST = partial(reconstruction, "MNIST", MNIST_SIZES, mnist_images)
_LIKE = partial(reconstruction, "CURVES-like", CURVES_SIZES, _generated)
_CURVES = partial(reconstruction, "CURVES", CURVES_SIZES, digs3pts_images)

AUTOENCODERS: dict[str, Callable[[Path | None], Problem]] = {
    "mnist": partial(_MNIST, "sigmoid"),
    "mnist-linear": partial(_MNIST, "linear"),
    "curves-like": partial(_LIKE, "sigmoid"),
    "curves-like-linear": partial(_LIKE, "linear"),
    "curves": partial(_CURVES, "sigmoid"),
    "curves-linear": partial(_CURVES, "linear"),
}
"""The paper's own, by name; called with the data folder, or None for the usual places."""

_MNIST_14 = partial(reconstruction, "MNIST, 14 x 14", _SMALL_SIZES, _halved(mnist_images))
_LIKE_14 = partial(reconstruction, "CURVES-like, 14 x 14", _SMALL_SIZES, _halved(_generated))

SMALL: dict[str, Callable[[Path | None], Problem]] = {
    "mnist-14": partial(_MNIST_14, "sigmoid"),
    "mnist-linear-14": partial(_MNIST_14, "linear"),
    "curves-like-14": partial(_LIKE_14, "sigmoid"),
    "curves-like-linear-14": partial(_LIKE_14, "linear"),
}
"""Small versions of four of them."""

BUILT_IN: dict[str, Callable[[Path | None], Problem]] = {
    **AUTOENCODERS,
    **SMALL,
    **FIELDS,
    "decays": lambda folder: decays_problem(),
    "decays-log": lambda folder: decays_problem(logarithms=True),
    "decays-batches": lambda folder: decays_problem(batch=50),
    "characters": lambda folder: characters_problem(),
}
"""All, by name; called as those."""
