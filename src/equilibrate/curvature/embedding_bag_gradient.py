"""The second derivative of embedding bags that add rows up, or average them.

Such a bag is linear in its rows w. So along a direction a of the gradient of w, with G = dL/d(bag),

    <a, dL/dw> = <G, bag(a)>,

which depends on G alone: its derivative is bag(a).
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_MODES = {0: "sum", 1: "mean"}  # by the number that torch's node keeps; 2 takes the largest
_TORCHS = "EmbeddingBagBackwardBackward0"


def replace(node: Any, leaving: tuple[Tensor | None, ...], arriving: tuple[Tensor, ...]) -> Any:
    """Return the gradient of the rows with our node behind; None leaves it without one."""
    by, mode = leaving[0], _MODES.get(node._saved_mode)
    if mode is None or by is None or type(by.grad_fn).__name__ != _TORCHS:
        return None
    # Rows with weights of their own; a gradient scaled by how often a row came is none of the loss.
    if node._saved_per_sample_weights is not None or node._saved_scale_grad_by_freq:
        return None
    offsets, padding = node._saved_offsets, node._saved_padding_idx
    how = {
        "input": node._saved_indices,
        "offsets": offsets,
        "mode": mode,
        "padding_idx": padding if padding < len(by) else None,
        "include_last_offset": len(offsets) > len(arriving[0]),
    }
    ours = EmbeddingBagGradient.apply(how, arriving[0], by.detach())  # type: ignore[no-untyped-call]
    return (ours, *leaving[1:])


class EmbeddingBagGradient(torch.autograd.Function):
    """The gradient of the rows, known already, as a function of G."""

    @staticmethod
    def forward(ctx: Any, how: dict[str, Any], gradient: Tensor, known: Tensor) -> Tensor:
        """Return what is known."""
        ctx.how = how
        return known

    @staticmethod
    def backward(ctx: Any, a: Tensor) -> Any:
        """Return bag(a)."""
        return None, functional.embedding_bag(weight=a, **ctx.how), None
