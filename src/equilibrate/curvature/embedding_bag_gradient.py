"""The second derivative of embedding bags that add rows up, or average them.

Such a bag is linear in its rows w. So along a direction a of the gradient of w, with G = dL/d(bag),

    <a, dL/dw> = <G, bag(a)>,

which depends on G alone: its derivative is bag(a).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn.functional import embedding_bag

from equilibrate.curvature.known_gradient import Tensors, known, node_behind

_MODES = {0: "sum", 1: "mean"}  # by the number that torch's node keeps; 2 takes the largest


def replace(node: Any, leaving: Tensors, arriving: Any) -> Any:
    """Return the gradient of the rows with our node behind; None leaves it without one."""
    by, mode = leaving[0], _MODES.get(node._saved_mode)
    if by is None or by.is_sparse or mode is None:
        return None
    if node_behind([by], "EmbeddingBagBackwardBackward0") is None:
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
    return (*known([by], partial(_derivatives, how), arriving[0]), *leaving[1:])


def _derivatives(
    how: dict[str, Any], of: Sequence[Tensor], along: Sequence[Tensor], wanted: Sequence[bool]
) -> Tensors:
    """Return bag(a)."""
    return [embedding_bag(weight=along[0], **how)]
