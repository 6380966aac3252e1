"""What is known in advance about condition numbers: van der Sluis and Guggenheimer (section 4).

Powers of N and determinants leave the range of a float64 before N = 1000, so the logarithm is the
function and the plain number a convenience for small matrices.
"""

import math

import torch
from torch import Tensor

from equilibrate.exact import checks
from equilibrate.exact.diagonals import equilibration


def van_der_sluis_factor(size: int) -> float:
    """Return sqrt(N): how far row equilibration may be from the best diagonal (van der Sluis 1969).

    kappa(D_E^-1 H) <= sqrt(N) min_D kappa(D^-1 H): one-sided scaling, which the paper leaves open.

    Example:
        >>> van_der_sluis_factor(25)
        5.0
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    return math.sqrt(size)


def log_guggenheimer_bound(matrix: Tensor) -> Tensor:
    """Return the natural logarithm of equation 8's bound on the condition number.

    log kappa(H) < log 2 - log |det H| + N log(||H||_F / sqrt(N)); inf where H is singular
    (Guggenheimer, Edelman & Johnson 1995).

    Example:
        >>> log_guggenheimer_bound(torch.eye(1000)).exp().round(decimals=3)
        tensor(2.)
    """
    checks.finite_square(matrix)
    log_determinant: Tensor = torch.linalg.slogdet(matrix)[1]
    return math.log(2.0) - log_determinant + _log_power(matrix)


def guggenheimer_bound(matrix: Tensor) -> Tensor:
    """Return 2 / |det H| (||H||_F / sqrt(N))^N, equation 8; inf where that overflows.

    Example:
        >>> guggenheimer_bound(torch.diag(torch.tensor([1.0, -1.0]))).round(decimals=4)
        tensor(2.)
    """
    return log_guggenheimer_bound(matrix).exp()


def log_equilibration_improvement(matrix: Tensor) -> Tensor:
    """Return the logarithm of `equilibration_improvement`; it is never below zero.

    Example:
        >>> log_equilibration_improvement(torch.eye(1000)).round(decimals=4)
        tensor(0.)
    """
    checks.finite_square(matrix)
    norms = equilibration(matrix)
    checks.positive(norms, "the row norms")
    return _log_power(matrix) - norms.log().sum(-1)


def equilibration_improvement(matrix: Tensor) -> Tensor:
    """Return the factor by which row equilibration lowers equation 8's bound, at least one.

    bound(H) / bound(D_E^-1 H) = (||H||_F / sqrt(N))^N / det(D_E). Proposition 4 prints the product
    with det(D_E) instead of the quotient. That it is >= 1 is the inequality of arithmetic and
    geometric means of the squared row norms: the more they vary, the larger. The symmetric form
    gains at least as much, as ||D^-1/2 H D^-1/2||_F <= sqrt(N).

    Example:
        >>> equilibration_improvement(torch.diag(torch.tensor([7.0, -1.0]))).round(decimals=4)
        tensor(3.5714)
    """
    return log_equilibration_improvement(matrix).exp()


def _log_power(matrix: Tensor) -> Tensor:
    """Return N log(||H||_F / sqrt(N))."""
    size = matrix.shape[-1]
    norm: Tensor = torch.linalg.matrix_norm(matrix)
    return size * (norm.log() - 0.5 * math.log(size))
