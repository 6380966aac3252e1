"""The Hessian after a change of variables: the curvature that preconditioned descent sees.

theta-hat = D^1/2 theta turns H into D^-1/2 H D^-1/2 (equation 3); elimination scales rows instead,
D^-1 H (section 4). The two have the same eigenvalues (Proposition 2). They do not have the same
singular values, so section 4's "reduced by the same amount" is an inequality:
kappa(D^-1/2 H D^-1/2) <= kappa(D^-1 H).
"""

import torch
from torch import Tensor

from equilibrate.exact import checks


def transformed(matrix: Tensor, preconditioner: Tensor) -> Tensor:
    """Return D^-1/2 H D^-1/2, equation 3.

    `preconditioner` is a diagonal, (..., N), one dimension fewer than the matrix; or a full
    symmetric positive definite matrix with as many dimensions, whose symmetric root is used.

    Example:
        >>> saddle = torch.diag(torch.tensor([4.0, -0.25]))
        >>> transformed(saddle, torch.tensor([4.0, 0.25]))
        tensor([[ 1.,  0.],
                [ 0., -1.]])
    """
    checks.symmetric(matrix)
    if preconditioner.ndim == matrix.ndim:
        root = inverse_root(preconditioner)
        return root @ matrix @ root
    if preconditioner.ndim != matrix.ndim - 1:
        shapes = tuple(preconditioner.shape), tuple(matrix.shape)
        raise ValueError(
            "preconditioner must have as many dimensions as the matrix, or one fewer for a "
            f"diagonal, got shapes {shapes[0]} and {shapes[1]}: expand one of them"
        )
    checks.length(preconditioner, matrix, "preconditioner")
    checks.positive(preconditioner, "preconditioner")
    root = preconditioner.rsqrt()
    return root.unsqueeze(-1) * matrix * root.unsqueeze(-2)


def left_scaled(matrix: Tensor, diagonal: Tensor) -> Tensor:
    """Return D^-1 H: every row divided by its own number (row equilibration, section 4).

    The matrix need not be symmetric: this is also how a linear system is scaled.

    Example:
        >>> left_scaled(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([5.0, 2.0]))
        tensor([[0.6000, 0.8000],
                [0.0000, 1.0000]])
    """
    checks.finite_square(matrix)
    checks.length(diagonal, matrix, "diagonal")
    checks.positive(diagonal, "diagonal")
    return matrix / diagonal.unsqueeze(-1)


def inverse_root(matrix: Tensor) -> Tensor:
    """Return the symmetric D^-1/2 of a symmetric positive definite D.

    Example:
        >>> inverse_root(torch.diag(torch.tensor([4.0, 16.0])))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
    checks.symmetric(matrix, "preconditioner")
    values, vectors = torch.linalg.eigh(matrix)
    checks.positive(values, "the spectrum of the preconditioner")
    root: Tensor = (vectors * values.rsqrt().unsqueeze(-2)) @ vectors.mT
    return root
