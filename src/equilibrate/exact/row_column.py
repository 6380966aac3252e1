"""Row-and-column equilibration: the diagonal that gives D^-1/2 H D^-1/2 unit rows and columns.

Section 4 calls this "more natural" than row equilibration and sets it aside. Bradley (2011) finds
it by scaling again and again with the norms that are left; for a symmetric H rows are columns. In
terms of q_i, the squared row norms of the matrix as scaled so far, one round is

    d <- d sqrt(q),        q_i = sum_j H_ij^2 / (d_i d_j),

and d is right where q = 1. A common factor, too large or too small, is gone after one round; and a
start from d = n^2, n the row norms of H, undoes any bad scaling S H S of the parameters at once, up
to such a factor. What remains halves in each round, roughly: the error of log d is multiplied by
(1 - B)/2, B the squared entries of the answer, doubly stochastic.

n^2 may leave the range of a float. The round from it, d_i = n_i ||(H_ij / n_j)_j||, needs no
squares of n, so that is where we start.
"""

import torch
from torch import Tensor

from equilibrate.exact import checks
from equilibrate.exact.diagonals import equilibration

NO_SCALING = "a row of zeros cannot be given unit norm: leave that parameter out"
# How near one a computed row norm comes, in eps: two roots and two products per entry make 3, the
# norm's own sum and root 1 or so (measured: up to 3 for 1 to 3,000 rows). Twice that is safe.
REACH = 8


def row_column(matrix: Tensor, *, iterations: int = 1000, tolerance: float | None = None) -> Tensor:
    """Return d > 0 such that every row and column of D^-1/2 H D^-1/2 has 2-norm one.

    Stops when all row norms are within `tolerance` of one, and raises RuntimeError when
    `iterations` rounds did not get there. Some matrices have no such scaling, [[1, 1], [1, 0]] for
    one: every non-zero entry must lie on a permutation without zeros.

    `tolerance` is 1e-8 unless told, or 8 eps of the dtype where those are more: 9.5e-7 in float32.
    Rounding makes less than 8 eps a matter of luck, so that is refused.

    Example:
        >>> d = row_column(torch.tensor([[3.0, 2.0], [2.0, 3.0]]))
        >>> d.round(decimals=4)  # the root of 3^2 + 2^2: unit rows
        tensor([3.6056, 3.6056])
    """
    checks.symmetric(matrix)
    tolerance = _reachable(tolerance, matrix.dtype)
    norms = equilibration(matrix)
    if bool((norms == 0).any()):
        raise ValueError(NO_SCALING)
    diagonal = norms * equilibration(matrix / norms.unsqueeze(-2))
    for _ in range(iterations):
        norms = equilibration(_scaled(matrix, diagonal))
        if bool(((norms - 1).abs() <= tolerance).all()):
            return diagonal
        diagonal = diagonal * norms
    left = float((equilibration(_scaled(matrix, diagonal)) - 1).abs().max())
    raise RuntimeError(
        f"row norms are still {left:.2g} from one after {iterations} iterations, asked for "
        f"{tolerance:.2g}: allow more iterations or a wider tolerance; a matrix with many zeros "
        "may have no such scaling at all"
    )


def _reachable(tolerance: float | None, dtype: torch.dtype) -> float:
    """Return the tolerance to stop at; raise ValueError for one that rounding may never reach."""
    least = REACH * torch.finfo(dtype).eps
    if tolerance is None:
        return max(1e-8, least)
    if not tolerance >= least:
        raise ValueError(
            f"{dtype} cannot be relied on to bring row norms within {tolerance:.2g} of one, only "
            f"within {least:.2g}: widen it to that, or .double() a matrix in single precision"
        )
    return tolerance


def _scaled(matrix: Tensor, diagonal: Tensor) -> Tensor:
    """Return D^-1/2 H D^-1/2 without checking H again."""
    root = diagonal.rsqrt()
    return root.unsqueeze(-1) * matrix * root.unsqueeze(-2)
