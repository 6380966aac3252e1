"""The second derivative of scaled dot-product attention, which torch's fused kernels lack.

    S = scale q k^T + mask,   P = softmax(S),   O = P v,   G = dL/dO

Along directions a, b and c of the gradients of q, k and v,

    <a, dL/dq> + <b, dL/dk> + <c, dL/dv> = <G, dP v + P c>,   dP = P o C(T),
    T = scale (a k^T + q b^T),   C(X) = X - rowsum(P o X)   (o: element by element),

where P o C(X) is softmax's derivative along X. What follows for G, q, k and v stands in
`_derivatives`.
Of the matrices of length x length none is kept from pass to pass: the memory is that of one layer.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from equilibrate.curvature.known_gradient import Tensors, known, node_behind


def replace(node: Any, leaving: Tensors, arriving: Any) -> Any:
    """Return the gradients for q, k and v with our node behind; None leaves them without one."""
    # What dropout has left out is not known.
    if node_behind(leaving[:3], "NotImplemented") is None or node._saved_dropout_p:
        return None
    of = arriving[0], node._saved_query, node._saved_key, node._saved_value
    scale = of[1].shape[-1] ** -0.5 if node._saved_scale is None else node._saved_scale
    derivatives = partial(_derivatives, node._saved_attn_mask, node._saved_is_causal, scale)
    return (*known(leaving[:3], derivatives, *of), *leaving[3:])


def _derivatives(
    mask: Tensor | None,
    causal: bool,
    scale: float,
    of: Sequence[Tensor],
    along: Tensors,
    wanted: Sequence[bool],
) -> Tensors:
    """Compute in float32 at least, with as many heads of k and v as q has."""
    pairs = zip(along, of[1:], strict=True)
    moved = [torch.zeros_like(like) if t is None else t for t, like in pairs]
    heads = of[0].shape[1]
    g, q, k, v, a, b, c = (_wide(t, heads) for t in (*of, *moved))
    p = _probabilities(scale * q @ k.mT, mask, causal)

    def centred(x: Tensor) -> Tensor:
        return x - (p * x).sum(-1, keepdim=True)

    by_p, by_s = centred(g @ v.mT), centred(scale * (a @ k.mT + q @ b.mT))
    first, change = p * by_p, p * by_s
    second = p * centred(by_p * by_s + g @ c.mT)
    found = (
        change @ v + p @ c,
        scale * (first @ b + second @ k),
        scale * (first.mT @ a + second.mT @ q),
        change.mT @ g,
    )
    return [_as(x, like) for x, like in zip(found, of, strict=True)]


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
