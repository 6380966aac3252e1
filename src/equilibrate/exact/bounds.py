"""What is known in advance about condition numbers: van der Sluis and Guggenheimer (section 4).

Powers of N and determinants leave the range of a float64 before N = 1000, so the logarithm is the
function and the plain number a convenience for small matrices.
"""

import math

import torch
from torch import Tensor

from equilibrate.exact import checks
from equilibrate.exact.norms import split_scale


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
    (Guggenheimer, Edelman & Johnson 1995). It is the same for c H as for H, whatever c.

    Example:
        >>> log_guggenheimer_bound(torch.eye(1000)).exp().round(decimals=3)
        tensor(2.)
    """
    checks.finite_square(matrix)
    rows, log_scales, log_norms = _in_logarithms(matrix)
    log_determinant: Tensor = torch.linalg.slogdet(rows)[1] + log_scales.sum(-1)
    bound = math.log(2.0) - log_determinant + _log_power(log_norms)
    # Of a matrix of zeros the norm has no logarithm either, and the bound would be NaN.
    return bound.where(log_determinant > -torch.inf, torch.inf)


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
    # A row's norm is zero where its largest entry is.
    checks.positive(matrix.abs().amax(-1), "the row norms")
    log_norms = _in_logarithms(matrix)[2]
    gain = _log_power(log_norms) - log_norms.sum(-1)
    # By the two means it is never below zero: what is, is rounding, and zero is nearer the truth.
    return gain.clamp(min=0)


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


def _in_logarithms(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return R, log p_i and log ||H_i|| of H_ij = p_i R_ij, in units of the largest ||H_i||.

    The bounds are free of the unit; in this one nothing overflows, and equal rows give zeros.
    """
    rows, scales = split_scale(matrix)
    exponents = torch.frexp(scales.squeeze(-1)).exponent
    # Whole numbers, so that their differences are exact.
    log_scales = (exponents - exponents.amax(-1, keepdim=True)).to(matrix) * math.log(2.0)
    log_norms = log_scales + torch.linalg.vector_norm(rows, dim=-1).log()
    unit = log_norms.amax(-1, keepdim=True)
    return rows, log_scales - unit, log_norms - unit


def _log_power(log_norms: Tensor) -> Tensor:
    """Return N log(||H||_F / sqrt(N)): N/2 times the logarithm of the mean squared row norm."""
    size = log_norms.shape[-1]
    return size / 2 * (2 * log_norms).exp().mean(-1).log()
