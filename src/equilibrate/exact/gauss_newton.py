"""The Gauss-Newton matrix of a network, from the network itself.

The Hessian of loss(outputs(theta)) has two parts (section 3 of the paper; LeCun et al. 1998):

    H = J^T H_L J + sum_k dL/dz_k  d^2 z_k / d theta^2,

J the Jacobian of all outputs z, H_L the Hessian of the loss in z. The first is the Gauss-Newton
matrix, never indefinite for a convex loss. The second vanishes where the residuals dL/dz do, or
where outputs are linear in the parameters: there, and only there, the two agree.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from equilibrate.curvature import split_like

Outputs = Callable[[list[Tensor]], Tensor]
Loss = Callable[[Tensor], Tensor]


def gauss_newton_product(
    outputs: Outputs, loss: Loss, parameters: Sequence[Tensor], vectors: Sequence[Tensor]
) -> list[Tensor]:
    """Return J^T H_L J v, by a forward derivative, a product with H_L, and a backward pass.

    `outputs` maps a list of parameters to the outputs for all samples, `loss` maps those to the
    scalar; whether it sums or averages over samples is its own matter and is carried through.

    Example:
        >>> w = torch.tensor([1.0, 2.0])
        >>> gauss_newton_product(
        ...     lambda p: p[0] ** 2, lambda z: z.square().sum(), [w], [torch.tensor([1.0, 0.0])])
        [tensor([8., 0.])]
    """
    point = [p.detach() for p in parameters]
    moving = torch.func.jvp(outputs, (point,), (list(vectors),))
    z, moved = moving[0], moving[1]
    # H_L is symmetric: its product by a second backward pass, which every torch loss has.
    bent = torch.func.vjp(torch.func.grad(loss), z)[1](moved)[0]
    product: list[Tensor] = torch.func.vjp(outputs, point)[1](bent)[0]
    return product


def gauss_newton(
    outputs: Outputs, loss: Loss, parameters: Sequence[Tensor], *, chunk: int = 128
) -> Tensor:
    """Return the N x N Gauss-Newton matrix J^T H_L J over all N parameter elements.

    Elements are counted as in `equilibrate.hessian`. Rows are computed `chunk` at a time; the cost
    is N products, for small cases alone.

    Example:
        >>> w = torch.tensor([1.0, 2.0])
        >>> gauss_newton(lambda p: p[0] ** 2, lambda z: z.square().sum(), [w])
        tensor([[ 8.,  0.],
                [ 0., 32.]])
    """
    point = [p.detach() for p in parameters]
    size = sum(p.numel() for p in point)

    def row(direction: Tensor) -> Tensor:
        product = gauss_newton_product(outputs, loss, point, split_like(direction, point))
        return torch.cat([r.reshape(-1) for r in product])

    axes = torch.eye(size, dtype=point[0].dtype, device=point[0].device)
    matrix: Tensor = torch.func.vmap(row, chunk_size=chunk)(axes)
    return matrix


def gauss_newton_diagonal(
    outputs: Outputs, loss: Loss, parameters: Sequence[Tensor], *, chunk: int = 128
) -> Tensor:
    """Return the diagonal of the Gauss-Newton matrix, LeCun's stand-in for Jacobi's (section 3).

    Example:
        >>> w = torch.tensor([1.0, 2.0])
        >>> gauss_newton_diagonal(lambda p: p[0] ** 2, lambda z: z.square().sum(), [w])
        tensor([ 8., 32.])
    """
    return gauss_newton(outputs, loss, parameters, chunk=chunk).diagonal()
