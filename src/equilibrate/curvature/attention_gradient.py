"""The second derivative of scaled dot-product attention, which torch's fused kernels lack.

    S = scale q k^T + mask,   P = softmax(S),   O = P v,   G = dL/dO

Along directions a, b and c of the gradients of q, k and v,

    <a, dL/dq> + <b, dL/dk> + <c, dL/dv> = <G, dP v + P c>,   dP = P o C(T),
    T = scale (a k^T + q b^T),   C(X) = X - rowsum(P o X)   (o: element by element),

where P o C(X) is softmax's derivative along X. What follows for G, q, k and v stands in `backward`.
Of the matrices of length x length none is kept from pass to pass: the memory is that of one layer.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_TORCHS = "NotImplemented"


def replace(node: Any, leaving: tuple[Tensor | None, ...], arriving: Any) -> Any:
    """Return the gradients for q, k and v with our node behind; None leaves them without one."""
    behind = {type(g.grad_fn).__name__ for g in leaving[:3] if g is not None}
    # Constant, or changed by somebody else's hook; and what dropout has left out is not known.
    if behind != {_TORCHS} or node._saved_dropout_p:
        return None
    of = node._saved_query, node._saved_key, node._saved_value
    scale = of[0].shape[-1] ** -0.5 if node._saved_scale is None else node._saved_scale
    how = node._saved_attn_mask, node._saved_is_causal, scale
    known = [None if g is None else g.detach() for g in leaving[:3]]
    ours = AttentionGradient.apply(how, arriving[0], *of, *known)  # type: ignore[no-untyped-call]
    return (*ours, *leaving[3:])


class AttentionGradient(torch.autograd.Function):
    """The gradients for q, k and v, known already, as a function of G, q, k and v."""

    @staticmethod
    def forward(ctx: Any, how: Any, *tensors: Tensor | None) -> Any:
        """Return what is known."""
        given, known = tensors[:4], tensors[4:]
        ctx.save_for_backward(*given)
        ctx.how = how
        return known

    @staticmethod
    def backward(ctx: Any, *along: Tensor | None) -> Any:
        """Return the derivatives of <G, dP v + P c> for G, q, k and v."""
        given: tuple[Tensor, ...] = ctx.saved_tensors
        pairs = zip(along, given[1:], strict=True)
        moved = [torch.zeros_like(like) if t is None else t for t, like in pairs]
        with torch.autocast(given[0].device.type, enabled=False):
            found = _derivatives(given, moved, *ctx.how)
        return (None, *found, None, None, None)


def _derivatives(
    given: Sequence[Tensor],
    along: Sequence[Tensor],
    mask: Tensor | None,
    causal: bool,
    scale: float,
) -> list[Tensor]:
    """Compute in float32 at least, with as many heads of k and v as q has."""
    heads = given[0].shape[1]
    g, q, k, v = (_wide(t, heads) for t in given)
    a, b, c = (_wide(t, heads) for t in along)
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
    return [_as(x, like) for x, like in zip(found, given, strict=True)]


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
