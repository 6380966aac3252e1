"""Row-and-column equilibration: the diagonal that gives D^-1/2 H D^-1/2 unit rows and columns.

Section 4 calls this "more natural" than row equilibration and sets it aside. Bradley (2011) finds
it by scaling again and again with the norms that are left; for a symmetric H rows are columns. In
terms of q_i, the squared row norms of the matrix as scaled so far, one round is

    d <- d sqrt(q),        q_i = sum_j H_ij^2 / (d_i d_j),

and d is right where q = 1. A common factor, too large or too small, is gone after one round; and a
start from d = squared row norms of H undoes any bad scaling S H S of the parameters at once, up to
such a factor. What remains halves in each round, roughly: the error of log d is multiplied by
(1 - B)/2, B the squared entries of the answer, doubly stochastic.
"""

from torch import Tensor

from equilibrate.exact import checks
from equilibrate.exact.diagonals import equilibration

NO_SCALING = "a row of zeros cannot be given unit norm: leave that parameter out"


def row_column(matrix: Tensor, *, iterations: int = 1000, tolerance: float = 1e-8) -> Tensor:
    """Return d > 0 such that every row and column of D^-1/2 H D^-1/2 has 2-norm one.

    Stops when all row norms are within `tolerance` of one, and raises RuntimeError when
    `iterations` rounds did not get there. Some matrices have no such scaling, [[1, 1], [1, 0]] for
    one: every non-zero entry must lie on a permutation without zeros.

    Example:
        >>> import torch
        >>> d = row_column(torch.tensor([[3.0, 2.0], [2.0, 3.0]]), tolerance=1e-6)
        >>> d.round(decimals=4)  # the root of 3^2 + 2^2: unit rows
        tensor([3.6056, 3.6056])
    """
    checks.symmetric(matrix)
    diagonal = equilibration(matrix).square()
    if bool((diagonal == 0).any()):
        raise ValueError(NO_SCALING)
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


def _scaled(matrix: Tensor, diagonal: Tensor) -> Tensor:
    """Return D^-1/2 H D^-1/2 without checking H again."""
    root = diagonal.rsqrt()
    return root.unsqueeze(-1) * matrix * root.unsqueeze(-2)
