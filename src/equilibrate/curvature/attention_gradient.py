"""The second derivative of scaled dot-product attention, which torch's fused kernels lack.

    S = scale q k^T + mask,   P = softmax(S),   O = P v,   G = dL/dO

Along directions a, b and c of the gradients of q, k and v,

    <a, dL/dq> + <b, dL/dk> + <c, dL/dv> = <G, dP v + P c>,   dP = P o C(T),
    T = scale (a k^T + q b^T),   C(X) = X - rowsum(P o X)   (o: element by element),

where P o C(X) is softmax's derivative along X. What follows for G, q, k and v stands in
`_of_heads`. It serves the fused kernels of a CPU and of a GPU (flash, memory-efficient, cuDNN).
Of the matrices of length x length none is kept from pass to pass: the memory is that of some heads
of one layer.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from equilibrate.curvature.known_gradient import Tensors, known, node_behind

_AT_ONCE = 2**27  # elements of a matrix for every pair of places: half a gigabyte in float32
_MASKS = ("_saved_attn_mask", "_saved_attn_bias")  # as the kernels that have any call it


def replace(node: Any, leaving: Tensors, arriving: Any) -> Any:
    """Return the gradients for q, k and v with our node behind; None leaves them without one."""
    if node_behind(leaving[:3], "NotImplemented") is None or any(
        g is not None for g in leaving[3:]
    ):
        return None  # a learned mask
    if node._saved_dropout_p:
        return None  # what it has left out is not known
    of = arriving[0], node._saved_query, node._saved_key, node._saved_value
    scale = of[1].shape[-1] ** -0.5 if node._saved_scale is None else node._saved_scale
    mask = next((getattr(node, name) for name in _MASKS if hasattr(node, name)), None)
    derivatives = partial(_derivatives, mask, node._saved_is_causal, scale)
    return (*known(leaving[:3], derivatives, *of), *leaving[3:])


def _derivatives(
    mask: Tensor | None,
    causal: bool,
    scale: float,
    of: Sequence[Tensor],
    along: Tensors,
    wanted: Sequence[bool],
) -> Tensors:
    """Compute in float32 at least, with as many heads of k and v as q has, some heads at a time."""
    pairs = zip(along, of[1:], strict=True)
    moved = [torch.zeros_like(like) if t is None else t for t, like in pairs]
    heads = of[0].shape[1]
    wide = [_wide(t, heads) for t in (*of, *moved)]
    a_head = len(wide[1]) * wide[1].shape[-2] * wide[2].shape[-2]
    step = max(1, _AT_ONCE // max(1, a_head))
    some = zip(*(torch.split(t, step, 1) for t in wide), strict=True)
    parts = [
        _of_heads(own, _of_some(mask, i * step, own[0].shape[1]), causal, scale)
        for i, own in enumerate(some)
    ]
    found = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    return [_as(x, like) for x, like in zip(found, of, strict=True)]


def _of_some(mask: Tensor | None, first: int, heads: int) -> Tensor | None:
    """Return the mask of some heads, where they have masks of their own."""
    if mask is None or mask.dim() < 3 or mask.shape[-3] == 1:
        return mask
    return mask.narrow(-3, first, heads)


def _of_heads(
    tensors: Sequence[Tensor], mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, ...]:
    """Return the derivatives for G, q, k and v of some heads."""
    g, q, k, v, a, b, c = tensors
    p = _probabilities(scale * q @ k.mT, mask, causal)

    def centred(x: Tensor) -> Tensor:
        return x - (p * x).sum(-1, keepdim=True)

    by_p, by_s = centred(g @ v.mT), centred(scale * (a @ k.mT + q @ b.mT))
    first, change = p * by_p, p * by_s
    second = p * centred(by_p * by_s + g @ c.mT)
    return (
        change @ v + p @ c,
        scale * (first @ b + second @ k),
        scale * (first.mT @ a + second.mT @ q),
        change.mT @ g,
    )


def _probabilities(scores: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return the softmax over what may be seen; nothing where that is nothing, as torch does."""
    if mask is not None:
        scores = scores + mask
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    blind = (scores == -torch.inf).all(-1, keepdim=True)
    return scores.softmax(-1).masked_fill(blind, 0)


def _wide(tensor: Tensor, heads: int) -> Tensor:
    """Return a tensor in float32 at least, its heads repeated where several share k and v."""
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    return wide.repeat_interleave(heads // tensor.shape[1], 1) if tensor.shape[1] < heads else wide


def _as(found: Tensor, like: Tensor) -> Tensor:
    """Return what was found in the dtype and with the heads of what it belongs to."""
    cases, heads, *sizes = like.shape
    if found.shape[1] > heads:
        found = found.reshape(cases, heads, -1, *sizes).sum(2)
    return found.to(like.dtype)
