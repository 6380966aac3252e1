"""Tensors (trials, ...) seen in the order in which they lie in memory.

The gradient of a batched product may come transposed. An update that reads parameter and gradient
in different orders crawls, so parameters are laid out as their gradients are, and everything
elementwise works on contiguous views (trials, elements).
"""

from torch import Tensor


def memory_order(tensor: Tensor) -> list[int]:
    """Return the dimensions from the outermost in memory to the innermost, trials first.

    Example:
        >>> import torch
        >>> memory_order(torch.zeros(2, 3, 4).mT)
        [0, 2, 1]
    """
    return [0, *sorted(range(1, tensor.dim()), key=tensor.stride, reverse=True)]


def laid_out(tensor: Tensor, order: list[int]) -> Tensor:
    """Return a copy whose dimensions lie in memory in the given order."""
    back = [order.index(i) for i in range(tensor.dim())]
    copy = tensor.detach().permute(order).contiguous().clone()
    return copy.permute(back)


def in_order(tensor: Tensor, order: list[int]) -> Tensor:
    """Return (trials, elements) in memory order: a view where the tensor lies so, else a copy."""
    return tensor.permute(order).reshape(tensor.shape[0], -1)


def view_in_order(tensor: Tensor, order: list[int]) -> Tensor:
    """Return the same as a view that may be written to, or raise: a copy would lose the writing."""
    return tensor.detach().permute(order).view(tensor.shape[0], -1)
