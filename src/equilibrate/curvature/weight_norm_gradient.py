"""The second derivative of the fused weight norm, w = g v / ||v||, over all dimensions but one.

Torch differentiates its gradient a second time as if ||v|| were a constant, without a word. Here it
is written out, in terms that torch differentiates as often as it is asked.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from equilibrate.curvature.known_gradient import Tensors, known


def replace(node: Any, leaving: Tensors, arriving: Any) -> Any:
    """Return the gradients for v and g with our node behind; raise where there can be none.

    To leave them to torch would be wrong.
    """
    name = type(node).__name__
    if not all(map(_is_torchs, leaving, ("MulBackward0", "DivBackward0"))):
        raise RuntimeError(f"{name} with a hook of its own cannot be differentiated twice")
    try:
        of = arriving[0], node._saved_v, node._saved_g
    except CheckpointError as error:
        raise RuntimeError(f"{name} in a checkpoint cannot be differentiated twice") from error
    return known(leaving, partial(_derivatives, node._saved_dim), *of)


def _is_torchs(gradient: Tensor | None, name: str) -> bool:
    """Tell whether torch has written this gradient out, or somebody's hook has changed it."""
    behind = None if gradient is None else gradient.grad_fn
    if behind is None or name == "DivBackward0":
        return behind is None or type(behind).__name__ == name
    before = {type(node).__name__ for node, _ in behind.next_functions}
    return type(behind).__name__ == name and "SubBackward0" in before


def _derivatives(
    dim: int, of: Sequence[Tensor], along: Tensors, wanted: Sequence[bool]
) -> Sequence[Tensor]:
    """Differentiate the gradients of what is written out, for dL/dw, v and g."""
    with torch.enable_grad():
        point = gradient, v, g = [t.detach().requires_grad_() for t in of]
        w = v * (g / torch.norm_except_dim(v, 2, dim))
        found = torch.autograd.grad(w, (v, g), gradient, create_graph=True)
        given = [(f, a) for f, a in zip(found, along, strict=True) if a is not None]
        outputs, directions = zip(*given, strict=True)
        return torch.autograd.grad(outputs, point, directions, materialize_grads=True)
