"""The same quantities exactly, on a matrix: what the estimators and the optimizers are held to."""

import torch
from torch import Tensor


def equilibration(matrix: Tensor) -> Tensor:
    """Return D_E = sqrt(diag(H^2)), the row norms of a symmetric matrix (section 4 of the paper).

    Example:
        >>> equilibration(torch.tensor([[3.0, 4.0], [4.0, 0.0]]))
        tensor([5., 4.])
    """
    norms: Tensor = torch.linalg.vector_norm(matrix, dim=-1)
    return norms


def jacobi(matrix: Tensor) -> Tensor:
    """Return D_J = |diag(H)| (section 3 of the paper).

    Example:
        >>> jacobi(torch.tensor([[-3.0, 4.0], [4.0, 0.0]]))
        tensor([3., 0.])
    """
    return matrix.diagonal(dim1=-2, dim2=-1).abs()


def condition_number(matrix: Tensor) -> Tensor:
    """Return the ratio of extreme singular values (equation 5), also of indefinite matrices.

    Example:
        >>> condition_number(torch.diag(torch.tensor([4.0, -2.0])))
        tensor(2.)
    """
    values: Tensor = torch.linalg.svdvals(matrix)
    return values[..., 0] / values[..., -1]


def cosine_distance(first: Tensor, second: Tensor) -> Tensor:
    """Return 1 - u.v / (|u| |v|) of two vectors (section 8.2): the angle, whatever the norms.

    Example:
        >>> cosine_distance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 5.0]))
        tensor(1.)
    """
    first, second = first.flatten(), second.flatten()
    norms: Tensor = torch.linalg.vector_norm(first) * torch.linalg.vector_norm(second)
    return 1 - torch.dot(first, second) / norms
