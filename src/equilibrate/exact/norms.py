"""Norms of numbers of any size: their squares leave the range of a float long before they do.

In float32 the square of 1e-25 is zero and that of 1e25 is inf. So a power of two, as large as the
largest number, is taken out first and put back after the root; dividing by it rounds nothing.
"""

import torch
from torch import Tensor


def split_scale(tensor: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Return t / p and p, the power of two at or below the largest |t| along `dim`.

    The largest |t / p| is in [1, 2); where all is zero, p is one. p keeps `dim`, at length one.

    Example:
        >>> split_scale(torch.tensor([3.0, -5.0]))
        (tensor([ 0.7500, -1.2500]), tensor([4.]))
    """
    # Detached: p is put back after the root, so that derivatives do not depend on it.
    largest = tensor.detach().abs().amax(dim, keepdim=True)
    mantissa = torch.frexp(largest).mantissa  # in [0.5, 1): what is left is the power of two
    scale = (largest / (2 * mantissa)).where(largest > 0, 1.0)
    return tensor / scale, scale


def norm(tensor: Tensor, dim: int = -1) -> Tensor:
    """Return the 2-norm along `dim`; inf or zero only where the norm itself leaves the range.

    Example:
        >>> norm(torch.tensor([[3e30, 4e30], [3e-30, 4e-30]]))
        tensor([5.0000e+30, 5.0000e-30])
    """
    scaled, scale = split_scale(tensor, dim)
    norms: Tensor = torch.linalg.vector_norm(scaled, dim=dim)
    return norms * scale.squeeze(dim)
