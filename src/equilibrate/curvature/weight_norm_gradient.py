"""The second derivative of the fused weight norm, w = g v / ||v||, over all dimensions but one.

Torch differentiates its gradient a second time as if ||v|| were a constant, without a word. Here it
is written out, in terms that torch differentiates as often as it is asked.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError


def replace(node: Any, leaving: tuple[Tensor | None, ...], arriving: tuple[Tensor, ...]) -> Any:
    """Return the gradients for v and g with our node behind."""
    try:
        of = arriving[0], node._saved_v, node._saved_g
    except CheckpointError as error:  # torch's own would be wrong
        name = type(node).__name__
        raise RuntimeError(f"{name} in a checkpoint cannot be differentiated twice") from error
    known = [None if gradient is None else gradient.detach() for gradient in leaving]
    return WeightNormGradient.apply(node._saved_dim, *of, *known)  # type: ignore[no-untyped-call]


class WeightNormGradient(torch.autograd.Function):
    """The gradients for v and g, known already, as a function of G = dL/dw, v and g."""

    @staticmethod
    def forward(ctx: Any, dim: int, *tensors: Tensor | None) -> Any:
        """Return what is known."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors[:3])
        ctx.dim = dim
        return tensors[3:]

    @staticmethod
    def backward(ctx: Any, *along: Tensor | None) -> Any:
        """Differentiate the gradients of what is written out, along those directions."""
        with torch.enable_grad(), torch.autocast(ctx.saved_tensors[0].device.type, enabled=False):
            point = gradient, v, g = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            w = v * (g / torch.norm_except_dim(v, 2, ctx.dim))
            found = torch.autograd.grad(w, (v, g), gradient, create_graph=True)
            given = [(f, a) for f, a in zip(found, along, strict=True) if a is not None]
            outputs, directions = zip(*given, strict=True)
            by = torch.autograd.grad(outputs, point, directions, materialize_grads=True)
        return None, *by, None, None
