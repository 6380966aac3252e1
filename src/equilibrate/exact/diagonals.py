"""Diagonal preconditioners of a symmetric matrix: equilibration and Jacobi."""

from torch import Tensor

from equilibrate.exact import checks
from equilibrate.exact.norms import norm


def equilibration(matrix: Tensor) -> Tensor:
    """Return D_E = sqrt(diag(H^2)), the row norms of a symmetric matrix (section 4 of the paper).

    Example:
        >>> import torch
        >>> equilibration(torch.tensor([[3.0, 4.0], [4.0, 0.0]]))
        tensor([5., 4.])
    """
    checks.finite_square(matrix)
    return norm(matrix)


def jacobi(matrix: Tensor) -> Tensor:
    """Return D_J = |diag(H)| (section 3 of the paper).

    Example:
        >>> import torch
        >>> jacobi(torch.tensor([[-3.0, 4.0], [4.0, 0.0]]))
        tensor([3., 0.])
    """
    checks.finite_square(matrix)
    return matrix.diagonal(dim1=-2, dim2=-1).abs()
