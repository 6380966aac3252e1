"""Jacobi: D = |E[v * Hv]|, the absolute diagonal of H (Bekas et al. 2007; section 6 of the paper).

Stored is the signed mean: the absolute value is taken of the average, never averaged itself.
"""

from typing import Any

from torch import Tensor


def contribution(vector: Tensor, product: Tensor) -> Tensor:
    """Return what one probe adds, linear in H so that micro-batches and ranks may be summed."""
    return vector * product


def fold_(diagonal: Tensor, contribution: Tensor, weight: float | Tensor) -> None:
    """Average one more product in: d <- d + (v * Hv - d) / weight, in place.

    `weight` may be a tensor that broadcasts, one number per trial of a stack.

    Example:
        >>> import torch
        >>> d = torch.tensor([3.0])
        >>> fold_(d, torch.tensor([-1.0]), weight=2)
        >>> d
        tensor([1.])
    """
    mix_(diagonal, contribution, *shares(weight))


def shares(weight: float | Tensor) -> tuple[Any, Any]:
    """Return the factors on d and on v * Hv at a total weight: 1 - 1/weight, 1/weight."""
    return 1 - 1 / weight, 1 / weight


def mix_(diagonal: Tensor, contribution: Tensor, old: Any, new: Any) -> None:
    """Fold with the factors of `shares`: d <- old d + new (v * Hv), in place."""
    diagonal.mul_(old).add_(contribution.to(diagonal.dtype) * new)


def magnitude(diagonal: Tensor) -> Tensor:
    """Return the positive diagonal that a step divides by: |mean|."""
    return diagonal.abs()
