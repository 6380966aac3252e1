"""The second derivative of convolutions, by convolutions of the usual shapes.

A convolution y = x * w is linear in x and in w. So along directions a and b of the gradients of x
and w, with G = dL/dy,

    <a, dL/dx> + <b, dL/dw> = <G, a * w + x * b>,

and what follows for G, x and w is a convolution or a gradient of one each. Torch's own formula
writes the gradient for w as a convolution with cases and channels exchanged, for which kernels are
slow.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from equilibrate.curvature.known_gradient import Tensors, known, node_behind

_forward, _backward = torch.ops.aten.convolution, torch.ops.aten.convolution_backward


def replace(node: Any, leaving: Tensors, arriving: Any) -> Any:
    """Return the gradients that leave a convolution, those of x and w with our node behind."""
    torchs = node_behind(leaving[:2], "ConvolutionBackwardBackward0")
    if torchs is None:
        return None
    how = (
        torchs._saved_stride,
        torchs._saved_padding,
        torchs._saved_dilation,
        torchs._saved_transposed,
        torchs._saved_output_padding,
        torchs._saved_groups,
    )
    of = torchs._saved_grad_output, torchs._saved_input, torchs._saved_weight
    return (*known(leaving[:2], partial(_derivatives, how), *of), *leaving[2:])


def _derivatives(
    how: tuple[Any, ...], of: Sequence[Tensor], along: Tensors, wanted: Sequence[bool]
) -> Tensors:
    """Return the derivatives of <G, a * w + x * b> for G, x and w."""
    (g, x, w), (a, b) = of, along
    for_g, for_x, for_w = wanted[:3]
    first = second = third = None
    if a is not None and for_g:
        first = _forward(a, w, None, *how)
    if b is not None and for_g:
        added = _forward(x, b, None, *how)
        first = added if first is None else first + added
    if b is not None and for_x:
        second, *_ = _backward(g, x, b, None, *how, (True, False, False))
    if a is not None and for_w:
        _, third, _ = _backward(g, a, w, None, *how, (False, True, False))
    return first, second, third
