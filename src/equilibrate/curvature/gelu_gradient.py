"""The second derivative of GELU, in fewer passes over memory than torch takes.

Of a gradient G f'(x) along a direction a, for G and x: a f'(x) and a G f''(x), with

    f(x)  = x Phi(x),             f''(x) = phi(x) (2 - x^2)

for the distribution and density Phi and phi of a standard normal, and for the approximation

    f(x)  = x (1 + tanh u) / 2,   u = k (x + c x^3),   k = sqrt(2 / pi),   c = 0.044715,
    f''(x) = (1 - t^2) (k (1 + 6 c x^2) - x t u'^2),   t = tanh u.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from equilibrate.curvature.known_gradient import Tensors, known, node_behind

_K, _C = math.sqrt(2 / math.pi), 0.044715


def replace(node: Any, leaving: Tensors, arriving: Any) -> Any:
    """Return the gradient that leaves a GELU with our node behind."""
    torchs = node_behind(leaving, "GeluBackwardBackward0")
    if torchs is None:
        return None
    derivatives = partial(_derivatives, torchs._saved_approximate)
    return known(leaving, derivatives, torchs._saved_grad_output, torchs._saved_self)


def _derivatives(
    approximate: str, of: Sequence[Tensor], along: Sequence[Tensor], wanted: Sequence[bool]
) -> Tensors:
    """Return the derivatives of <a, G f'(x)> for G and x, in float32 at least."""
    (g, x), (a,) = of, along
    first = torch.ops.aten.gelu_backward(a, x, approximate=approximate) if wanted[0] else None
    if not wanted[1]:
        return first, None
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    curved = _by_tanh(wide) if approximate == "tanh" else _exact(wide)
    return first, (a * curved.mul_(g)).to(x.dtype)


def _exact(x: Tensor) -> Tensor:
    """Return f''(x) = phi(x) (2 - x^2)."""
    squares = x * x
    return (squares * -0.5).exp_().mul_(squares.neg_().add_(2)).mul_(1 / math.sqrt(2 * math.pi))


def _by_tanh(x: Tensor) -> Tensor:
    """Return f''(x) of the approximation."""
    squares = x * x
    t = (_K * _C * squares).add_(_K).mul_(x).tanh_()
    slope = (3 * _K * _C * squares).add_(_K)  # u'
    flat = (t * t).neg_().add_(1)
    # In this order nothing overflows before it is multiplied by what is zero far from the origin.
    turned = (flat * slope).mul_(slope.mul_(x).mul_(t))
    return squares.mul_(6 * _K * _C).add_(_K).mul_(flat).sub_(turned)
