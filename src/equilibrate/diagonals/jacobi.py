"""Jacobi: D = |E[v * Hv]|, the absolute diagonal of H (Bekas et al. 2007; section 6 of the paper).

Stored is the signed mean: the absolute value is taken of the average, never averaged itself.
"""

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
    diagonal.lerp_(contribution.to(diagonal.dtype), 1 / weight)


def magnitude(diagonal: Tensor) -> Tensor:
    """Return the positive diagonal that a step divides by: |mean|."""
    return diagonal.abs()
