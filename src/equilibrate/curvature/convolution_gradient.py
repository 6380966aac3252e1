"""The second derivative of convolutions, as fast as the first.

A convolution y = x * w is linear in x and in w. So along directions a and b of the gradients of x
and w, with G = dL/dy,

    <a, dL/dx> + <b, dL/dw> = <G, a * w + x * b>,

and what follows for G, x and w is a convolution or a gradient of one each. Torch's own formula
writes the gradient for w as a convolution with cases and channels exchanged, for which kernels are
slow.
"""

from typing import Any

import torch
from torch import Tensor

_TORCHS = "ConvolutionBackwardBackward0"
_forward, _backward = torch.ops.aten.convolution, torch.ops.aten.convolution_backward


def replace(node: Any, leaving: tuple[Tensor | None, ...], arriving: Any) -> Any:
    """Return the gradients that leave a convolution, those of x and w with our node behind."""
    nodes: list[Any] = [g.grad_fn for g in leaving[:2] if g is not None]
    if {type(behind).__name__ for behind in nodes} != {_TORCHS}:
        return None  # constant, or changed by somebody else's hook
    torchs = nodes[0]
    how = (
        torchs._saved_stride,
        torchs._saved_padding,
        torchs._saved_dilation,
        torchs._saved_transposed,
        torchs._saved_output_padding,
        torchs._saved_groups,
    )
    # Not those of `node`: a checkpoint hands what it has recomputed out once.
    of = torchs._saved_grad_output, torchs._saved_input, torchs._saved_weight
    known = [None if g is None else g.detach() for g in leaving[:2]]
    ours = ConvolutionGradient.apply(how, *of, *known)  # type: ignore[no-untyped-call]
    return (*ours, *leaving[2:])


class ConvolutionGradient(torch.autograd.Function):
    """The gradients for x and w, known already, as a function of G, x and w."""

    @staticmethod
    def forward(
        ctx: Any, how: tuple[Any, ...], g: Tensor, x: Tensor, w: Tensor, *known: Tensor | None
    ) -> Any:
        """Return what is known."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(g, x, w)
        ctx.how = how  # stride, padding, dilation, transposed, output padding, groups
        return known

    @staticmethod
    def backward(ctx: Any, a: Tensor | None, b: Tensor | None) -> Any:
        """Return the derivatives of <G, a * w + x * b> for G, x and w."""
        g, x, w = ctx.saved_tensors
        _, for_g, for_x, for_w, *_ = ctx.needs_input_grad
        first = second = third = None
        with torch.autocast(g.device.type, enabled=False):
            if a is not None and for_g:
                first = _forward(a, w, None, *ctx.how)
            if b is not None and for_g:
                added = _forward(x, b, None, *ctx.how)
                first = added if first is None else first + added
            if b is not None and for_x:
                second, *_ = _backward(g, x, b, None, *ctx.how, (True, False, False))
            if a is not None and for_w:
                _, third, _ = _backward(g, a, w, None, *ctx.how, (False, True, False))
        return None, first, second, third, None, None
