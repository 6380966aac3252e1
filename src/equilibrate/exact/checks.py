"""What every function of this room asks of its matrices, with errors that name the fix."""

import torch
from torch import Tensor


def finite_square(matrix: Tensor, name: str = "matrix") -> None:
    """Raise ValueError unless this is a (batch of) floating, square matrices without NaN or inf.

    Floating means float32 or float64: torch decomposes no matrices of fewer digits.

    Example:
        >>> finite_square(torch.zeros(2, 3))
        Traceback (most recent call last):
        ValueError: matrix must be square, (..., N, N), got shape (2, 3)
    """
    shape = tuple(matrix.shape)
    if matrix.ndim < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"{name} must be square, (..., N, N), got shape {shape}")
    if shape[-1] == 0:
        raise ValueError(f"{name} has no entries, got shape {shape}: give it at least one row")
    finite(matrix, name)
    if matrix.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be float32 or float64, got {matrix.dtype}: .float() it")


def finite(tensor: Tensor, name: str) -> None:
    """Raise ValueError for whole numbers, complex numbers, NaN or inf."""
    if not tensor.is_floating_point():
        # .double() would drop an imaginary part without a word.
        advice = "take .real if the rest is zero" if tensor.is_complex() else ".double() it"
        raise ValueError(f"{name} must hold real floating numbers, got {tensor.dtype}: {advice}")
    bad = int((~tensor.isfinite()).sum())
    if bad:
        raise ValueError(f"{name} holds {bad} NaN or infinite entries: look where it was computed")


def symmetric(matrix: Tensor, name: str = "matrix") -> None:
    """Raise ValueError unless H = H^T up to the square root of the dtype's rounding.

    A Hessian row by row from autograd is symmetric up to rounding; sqrt(eps) of the largest entry
    lets that pass, and no transposition slip.

    Example:
        >>> symmetric(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
        Traceback (most recent call last):
        ValueError: matrix must be symmetric, but entries differ from its transpose by up to 2: \
symmetrise it, (A + A.mT) / 2, if that is rounding
    """
    finite_square(matrix, name)
    off = (matrix - matrix.mT).abs().amax((-2, -1))
    allowed = torch.finfo(matrix.dtype).eps ** 0.5 * matrix.abs().amax((-2, -1))
    if bool((off > allowed).any()):
        raise ValueError(
            f"{name} must be symmetric, but entries differ from its transpose by up to "
            f"{float(off.max()):.3g}: symmetrise it, (A + A.mT) / 2, if that is rounding"
        )


def invertible(eigenvalues: Tensor, name: str = "matrix") -> None:
    """Raise ValueError where an eigenvalue is zero up to rounding, eps times the largest."""
    sizes = eigenvalues.abs()
    floor = torch.finfo(sizes.dtype).eps * sizes.amax(-1)
    if bool((sizes.amin(-1) <= floor).any()):
        raise ValueError(
            f"{name} is singular up to rounding and has no inverse: damp it (add a multiple of the "
            "identity) or project out its null directions"
        )


def positive(tensor: Tensor, name: str) -> None:
    """Raise ValueError unless every entry is finite and above zero."""
    finite(tensor, name)
    bad = int((tensor <= 0).sum())
    if bad:
        raise ValueError(f"{name} must be positive, but {bad} entries are not: damp or clamp it")


def length(vector: Tensor, matrix: Tensor, name: str) -> None:
    """Raise ValueError unless the vector's last dimension is the matrix's size N."""
    if vector.ndim == 0 or vector.shape[-1] != matrix.shape[-1]:
        raise ValueError(
            f"{name} must have shape (..., {matrix.shape[-1]}) to go with a matrix of that size, "
            f"got {tuple(vector.shape)}"
        )
