"""How badly a matrix is conditioned, and how far apart two diagonals are."""

import torch
from torch import Tensor


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
