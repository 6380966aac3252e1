"""Products of the Hessian with vectors: from a live loss, and from a function.

The Hessian is never formed. Two exact ways are here, the third (differences of gradients, for
models without second derivatives) is in `differences.py`.

- A *live loss* has its graph still attached: differentiate g . v once more (double backward). This
  is what `ESGD.probe` does; the loss can still be backpropagated afterwards. Where torch has no
  second derivative, or a slow one, `second_derivatives.py` has some of ours.
- A *function* of parameters is differentiated forward over reverse, Pearlmutter's R-operator, which
  is what section 4 of the paper means by "the R-operator". It can be put under `torch.func.vmap`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from equilibrate.curvature.checks import check_loss, listed
from equilibrate.curvature.graph import (
    Nodes,
    nodes,
    parallel_models,
    refusing_opaque,
    unnoticed_by,
    without_hooks,
)
from equilibrate.curvature.recomputing import leaving_statistics
from equilibrate.curvature.second_derivatives import second_derivatives


class LossHessian:
    """The Hessian of a live loss, as a callable: vectors to products.

    H v = d(g . v)/d(theta), g = dL/d(theta) with its own graph. The gradient's graph is built once
    and serves every vector; dropping this object frees it. `present[i]` tells whether the loss
    depends on parameter i at all, `gradients[i]` is its gradient (times `scale`) or None. `scale`
    multiplies the loss before differentiating and divides the product afterwards: a power of two
    changes no bit of a float32 result and keeps float16 from underflow.

    Example:
        >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> LossHessian((w**3).sum(), [w])([torch.ones(2)])
        [tensor([ 6., 12.])]
    """

    def __init__(
        self,
        loss: Tensor,
        parameters: Sequence[Tensor],
        *,
        scale: float = 1.0,
        graph: Nodes | None = None,
    ) -> None:
        """Build the gradient's graph; `graph` are the loss's `nodes`, where they are known."""
        check_loss(loss)
        self.parameters = listed(parameters)
        self.scale = scale
        found = nodes(loss) if graph is None else graph
        self._models = parallel_models(found)
        with (
            torch.enable_grad(),
            self._undisturbed(),
            refusing_opaque(found),
            second_derivatives(found),
        ):
            gradients = torch.autograd.grad(
                loss,
                self.parameters,
                grad_outputs=torch.full_like(loss, scale),
                create_graph=True,
                allow_unused=True,
            )
        self.live: Sequence[Tensor | None] = gradients  # parts of their graph, as they are
        self.present = [g is not None for g in gradients]
        # Where the loss is linear in a parameter the gradient is a constant: its row of H is zero.
        self._curved = [i for i, g in enumerate(gradients) if g is not None and g.requires_grad]
        self._gradients = [g for g in gradients if g is not None and g.requires_grad]

    def __call__(
        self,
        vectors: Sequence[Tensor],
        *,
        wanted: Sequence[int] | None = None,
        stacked: bool = False,
        last: bool = False,
    ) -> list[Tensor]:
        """Multiply: one vector, or with `stacked` several at once along a new first dimension.

        `wanted` limits the rows of H that are computed to some parameters, by position. With `last`
        the graph is freed on the way, the loss's own too: no other product, no backward.
        """
        if len(vectors) != len(self.parameters):
            raise ValueError(
                f"LossHessian takes one vector for each of the {len(self.parameters)} parameters, "
                f"got {len(vectors)}."
            )
        rows = range(len(self.parameters)) if wanted is None else wanted
        inputs = [self.parameters[i] for i in rows]
        lead = vectors[0].shape[:1] if stacked else torch.Size()
        if not self._curved or not inputs:
            return [p.new_zeros(lead + p.shape) for p in inputs]
        # The buffers of the forward pass are shared with the user's own backward: retained for it.
        with self._undisturbed():
            products = torch.autograd.grad(
                self._gradients,
                inputs,
                grad_outputs=[vectors[i] for i in self._curved],
                retain_graph=not last,
                allow_unused=True,
                is_grads_batched=stacked,
            )
        return [
            p.new_zeros(lead + p.shape) if product is None else self._unscaled(_detached(product))
            for p, product in zip(inputs, products, strict=True)
        ]

    @property
    def gradients(self) -> list[Tensor | None]:
        """The gradient by parameter, times `scale`; None where the loss does not depend on one."""
        return [None if g is None else g.detach() for g in self.live]

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Differentiate without a hook of a gradient, or running statistics, taking notice."""
        with without_hooks(self.parameters), unnoticed_by(self._models), leaving_statistics():
            yield

    def _unscaled(self, product: Tensor) -> Tensor:
        """Undo `scale`, in float32 at least: the quotient may be too small for the half types."""
        if self.scale == 1.0:
            return product
        # Never in place: autograd may hand back the very tensor that came in as the vector.
        return product.to(torch.promote_types(product.dtype, torch.float32)) / self.scale


def _detached(tensor: Tensor) -> Tensor:
    """Return a tensor without its graph; itself where there is none, as of most products."""
    return tensor.detach() if tensor.requires_grad else tensor


def loss_product(
    loss: Tensor, parameters: Sequence[Tensor], vectors: Sequence[Tensor], *, stacked: bool = False
) -> list[Tensor]:
    """Return H v for a live scalar loss, by double backward; the loss stays usable.

    With `stacked` every vector has one more, leading, dimension: several products at once.

    Example:
        >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> loss_product(w[0] * w[1], [w], [torch.tensor([1.0, 0.0])])
        [tensor([0., 1.])]
    """
    return LossHessian(loss, parameters)(vectors, stacked=stacked)


def function_product(
    function: Callable[[list[Tensor]], Tensor],
    parameters: Sequence[Tensor],
    vectors: Sequence[Tensor],
    *,
    stacked: bool = False,
) -> list[Tensor]:
    """Return H v for a scalar function of a list of parameters, by the R-operator.

    R{g} = d/de g(theta + e v) at e = 0 (Pearlmutter 1994; section 4 of the paper), computed as a
    forward derivative of the gradient function. It composes with `torch.func.vmap`; with `stacked`
    every vector has one more, leading, dimension. An operation whose backward has no forward
    derivative fails here: `torch.nn.functional.mse_loss` is one, write the square out instead.

    Example:
        >>> w = torch.tensor([1.0, 2.0])
        >>> function_product(lambda p: (p[0] ** 3).sum(), [w], [torch.ones(2)])
        [tensor([ 6., 12.])]
    """
    point = [p.detach() for p in parameters]
    gradient = torch.func.grad(function)

    def product(direction: list[Tensor]) -> list[Tensor]:
        tangent: list[Tensor] = torch.func.jvp(gradient, (point,), (direction,))[1]
        return tangent

    run = torch.func.vmap(product) if stacked else product
    result: list[Tensor] = run(list(vectors))
    return result
