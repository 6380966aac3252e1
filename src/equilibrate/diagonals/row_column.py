"""Row and column: d such that D^-1/2 H D^-1/2 has unit rows and columns (section 4; Bradley 2011).

    d_i = sum_j H_ij^2 / d_j = E[(H D^-1/2 v)_i^2],        E[v v^T] = I.

Stored is d itself, which has the unit of H: no root is taken. The vectors handed to H are scaled by
D^-1/2 beforehand (`optim.row_column`).
"""

from typing import Any

from torch import Tensor


def contribution(vector: Tensor, product: Tensor) -> Tensor:
    """Return what one probe adds, linear in H so that micro-batches and ranks may be summed."""
    return product


def fold_(diagonal: Tensor, contribution: Tensor, weight: float | Tensor) -> None:
    """Average one more product in: d <- d + ((H D^-1/2 v)^2 - d) / weight, in place.

    Example:
        >>> import torch
        >>> d = torch.tensor([4.0])
        >>> fold_(d, torch.tensor([4.0]), weight=4.0)  # 4 + (16 - 4) / 4
        >>> d
        tensor([7.])
    """
    mix_(diagonal, contribution, *shares(weight))


def shares(weight: float | Tensor) -> tuple[Any, Any]:
    """Return the factors on d and on (H D^-1/2 v)^2 at a total weight: 1 - 1/weight, 1/weight."""
    return 1 - 1 / weight, 1 / weight


def mix_(diagonal: Tensor, contribution: Tensor, old: Any, new: Any) -> None:
    """Fold with the factors of `shares`: d <- old d + new (H D^-1/2 v)^2, in place."""
    diagonal.mul_(old).add_(contribution.to(diagonal.dtype).square() * new)


def magnitude(diagonal: Tensor) -> Tensor:
    """Return the positive diagonal that a step divides by: what is stored."""
    return diagonal
