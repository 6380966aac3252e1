"""Equilibration: D = sqrt(E[(Hv)^2]), the row norms of H (section 4 and Algorithm 1 of the paper).

Stored is the root, so that an ordinary step takes none; a fold squares, averages and takes the root
again, all inside `hypot`, which neither overflows nor underflows where a plain square would.
"""

from typing import Any

import torch
from torch import Tensor


def contribution(vector: Tensor, product: Tensor) -> Tensor:
    """Return what one probe adds, linear in H so that micro-batches and ranks may be summed."""
    return product


def fold_(diagonal: Tensor, contribution: Tensor, weight: float | Tensor) -> None:
    """Average one more product in: D^2 <- D^2 + ((Hv)^2 - D^2) / weight, in place.

    `weight` may be a tensor that broadcasts, one number per trial of a stack.

    Example:
        >>> d = torch.tensor([4.0])
        >>> fold_(d, torch.tensor([0.0]), weight=4.0)  # sqrt(16 - 16/4)
        >>> d
        tensor([3.4641])
    """
    mix_(diagonal, contribution, *shares(weight))


def shares(weight: float | Tensor) -> tuple[Any, Any]:
    """Return the factors on D and on Hv at a total weight: sqrt(1 - 1/weight), sqrt(1/weight)."""
    return (1 - 1 / weight) ** 0.5, (1 / weight) ** 0.5


def mix_(diagonal: Tensor, contribution: Tensor, old: Any, new: Any) -> None:
    """Fold with the factors of `shares`: D^2 <- (old D)^2 + (new Hv)^2, in place."""
    entering = contribution.to(diagonal.dtype) * new
    if torch.compiler.is_compiling():
        diagonal.copy_(_root_of_squares(diagonal * old, entering))
        return
    diagonal.mul_(old)
    torch.hypot(diagonal, entering, out=diagonal)


def _root_of_squares(a: Tensor, b: Tensor) -> Tensor:
    """Return hypot(a, b) written out: the compiler has none and would make several passes."""
    larger, smaller = torch.maximum(a.abs(), b.abs()), torch.minimum(a.abs(), b.abs())
    return larger * (1 + (smaller / torch.where(larger == 0, 1.0, larger)) ** 2).sqrt()


def magnitude(diagonal: Tensor) -> Tensor:
    """Return the positive diagonal that a step divides by: what is stored."""
    return diagonal
