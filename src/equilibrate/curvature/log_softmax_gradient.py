"""The second derivative of log-softmax, in fewer passes over memory than torch takes.

Of a gradient G - exp(y) sum(G) along a direction a, for G and for y, the log-softmax itself:

    a - sum(a exp(y)),   -a exp(y) sum(G),

where sums are over the dimension that is normalised.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor

from equilibrate.curvature.known_gradient import Tensors, known, node_behind


def replace(node: Any, leaving: Tensors, arriving: Any) -> Any:
    """Return the gradient that leaves a log-softmax with our node behind."""
    torchs = node_behind(leaving, "LogSoftmaxBackwardDataBackward0")
    if torchs is None:
        return None
    of = torchs._saved_grad_output, torchs._saved_output
    dim = torchs._saved_dim  # as an unsigned number
    return known(leaving, partial(_derivatives, dim - 2**64 if dim >= 2**63 else dim), *of)


def _derivatives(
    dim: int, of: Sequence[Tensor], along: Sequence[Tensor], wanted: Sequence[bool]
) -> Tensors:
    """Return the derivatives of <a, G - exp(y) sum(G)> for G and y."""
    g, y = of
    a = along[0].to(g.dtype)
    weighed = a * y.exp()
    first = a - weighed.sum(dim, keepdim=True) if wanted[0] else None
    return first, weighed * -g.sum(dim, keepdim=True) if wanted[1] else None
