"""The absolute matrix |H|, and the two full steps it tells apart: Newton's and the saddle-free one.

Sections 2 and 5 of the paper. |H| keeps the eigenvectors and takes the sizes of the eigenvalues: it
is the positive definite preconditioner that makes every curvature +1 or -1. The paper calls it the
only one (Proposition 1). That holds up to a common factor for kappa(D^-1 H); in the symmetric form,
kappa(D^-1/2 H D^-1/2), an indefinite H has others: `tests/exact/test_section_2.py`, T4.
"""

import torch
from torch import Tensor

from equilibrate.exact import checks


def _spectrum(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues and eigenvectors of a checked symmetric matrix."""
    checks.symmetric(matrix)
    values, vectors = torch.linalg.eigh(matrix)
    return values, vectors


def absolute(matrix: Tensor) -> Tensor:
    """Return |H| = sum_j |lambda_j| q_j q_j^T, equation 6.

    Example:
        >>> absolute(torch.tensor([[0.0, 2.0], [2.0, 0.0]])).round(decimals=4)
        tensor([[2., 0.],
                [0., 2.]])
    """
    values, vectors = _spectrum(matrix)
    return (vectors * values.abs().unsqueeze(-2)) @ vectors.mT


def newton_step(matrix: Tensor, gradient: Tensor) -> Tensor:
    """Return -H^-1 g, the step to the stationary point of the quadratic, a saddle included.

    Section 2: where H is indefinite this moves toward the saddle. `gradient` is (..., N).

    Example:
        >>> newton_step(torch.diag(torch.tensor([2.0, -1.0])), torch.tensor([2.0, -1.0]))
        tensor([-1., -1.])
    """
    return _step(matrix, gradient, take_absolute=False)


def saddle_free_step(matrix: Tensor, gradient: Tensor) -> Tensor:
    """Return -|H|^-1 g: Newton's step with every negative curvature turned into an escape.

    Example:
        >>> saddle_free_step(torch.diag(torch.tensor([2.0, -1.0])), torch.tensor([2.0, -1.0]))
        tensor([-1.,  1.])
    """
    return _step(matrix, gradient, take_absolute=True)


def _step(matrix: Tensor, gradient: Tensor, *, take_absolute: bool) -> Tensor:
    """Return -Q (Q^T g / lambda), or with |lambda|."""
    values, vectors = _spectrum(matrix)
    checks.invertible(values)
    checks.length(gradient, matrix, "gradient")
    checks.finite(gradient, "gradient")
    along = (vectors.mT @ gradient.unsqueeze(-1)).squeeze(-1)
    scaled = along / (values.abs() if take_absolute else values)
    return -(vectors @ scaled.unsqueeze(-1)).squeeze(-1)
