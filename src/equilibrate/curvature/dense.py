"""The dense Hessian, for small cases: the slow, obvious truth that everything else is held to."""

from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.curvature.checks import listed


def hessian(loss: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return the N x N Hessian of a live scalar loss, row by row, over all N parameter elements.

    Row i is the gradient of the i-th element of the gradient. Elements are counted row-major, one
    parameter after the other. The cost is N backward passes and N^2 numbers: for small cases alone.

    Example:
        >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> hessian(w[0] ** 2 * w[1], [w])
        tensor([[4., 2.],
                [2., 0.]])
    """
    parameters = listed(parameters)
    gradients = torch.autograd.grad(
        loss, parameters, create_graph=True, allow_unused=True, materialize_grads=True
    )
    elements = torch.cat([g.reshape(-1) for g in gradients])
    return torch.stack([_row(element, parameters) for element in elements])


def _row(element: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return the gradient of one element of the gradient, flattened."""
    if not element.requires_grad:
        return torch.cat([torch.zeros_like(p).reshape(-1) for p in parameters])
    row = torch.autograd.grad(
        element, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return torch.cat([r.reshape(-1) for r in row])


def split_like(flat: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Cut a flat vector over all elements into tensors shaped like the parameters.

    Example:
        >>> split_like(torch.arange(3), [torch.zeros(2, 1), torch.zeros(1)])[0].shape
        torch.Size([2, 1])
    """
    pieces = torch.split(flat, [p.numel() for p in parameters])
    return [piece.view(p.shape) for piece, p in zip(pieces, parameters, strict=True)]
