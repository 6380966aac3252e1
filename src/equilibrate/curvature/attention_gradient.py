"""The second derivative of scaled dot-product attention, which torch's fused kernels lack.

    S = scale q k^T + mask,   P = softmax(S),   O = P v,   G = dL/dO

Along directions a, b and c of the gradients of q, k and v,

    <a, dL/dq> + <b, dL/dk> + <c, dL/dv> = <G, dP v + P c>,   dP = P o C(T),
    T = scale (a k^T + q b^T),   C(X) = X - rowsum(P o X)   (o: element by element),

where P o C(X) is softmax's derivative along X. What follows for G, q, k and v stands in
`_of_heads`. It serves the fused kernels of a CPU and of a GPU (flash, memory-efficient, cuDNN).
Of the matrices of length x length none is kept from pass to pass, and some ten live at a time: of
some cases and heads of one layer.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from equilibrate.curvature.known_gradient import Tensors, known, node_behind

_AT_ONCE = 2**25  # elements of such a matrix: 128 MB in float32
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
    masks = (getattr(node, name, None) for name in _MASKS)
    mask = next((each.detach() for each in masks if each is not None), None)
    derivatives = partial(_derivatives, _last_seen(node, of[1], of[2]), scale)
    return (*known(leaving[:3], derivatives, *of, mask), *leaving[3:])


def _last_seen(node: Any, q: Tensor, k: Tensor) -> int | None:
    """Return which place the first query sees last under a causal mask: 0, the first, for most.

    Flash on a GPU lets the last query see the last place (`causal_lower_right`), where all other
    kernels begin at the upper left; it is given no other lengths that differ.
    """
    if not node._saved_is_causal:
        return None
    lower_right = type(node).__name__ == "ScaledDotProductFlashAttentionBackward0"
    return k.shape[-2] - q.shape[-2] if lower_right else 0


def _derivatives(
    last_seen: int | None,
    scale: float,
    of: Sequence[Any],
    along: Tensors,
    wanted: Sequence[bool],
) -> Tensors:
    """Compute in float32 at least, with as many heads of k and v as q has, a part at a time."""
    *tensors, mask = of
    q, k = tensors[1:3]
    pairs = zip(along, tensors[1:], strict=True)
    moved = [torch.zeros_like(like) if t is None else t for t, like in pairs]
    heads = q.shape[1]
    wide = [_wide(t, heads) for t in (*tensors, *moved)]
    pairs_of_places = max(1, q.shape[-2] * k.shape[-2])
    some_heads = max(1, _AT_ONCE // pairs_of_places)
    some_cases = max(1, some_heads // heads)
    compute = partial(_of_part, last_seen, scale)
    found = _in_parts(0, some_cases, partial(_in_parts, 1, some_heads, compute), wide, mask)
    return [*(_as(x, like) for x, like in zip(found, tensors, strict=True)), None]


def _in_parts(
    dim: int,
    step: int,
    compute: Callable[[Sequence[Tensor], Tensor | None], Sequence[Tensor]],
    tensors: Sequence[Tensor],
    mask: Tensor | None,
) -> list[Tensor]:
    """Compute for some of a dimension at a time, the mask's too where it has its own for each."""
    parts = list(zip(*(torch.split(t, step, dim) for t in tensors), strict=True))
    masks: Sequence[Tensor | None] = [mask] * len(parts)
    if mask is not None and mask.dim() >= 4 - dim and mask.shape[dim - 4] > 1:
        masks = torch.split(mask, step, dim - 4)
    found = [compute(own, seen) for own, seen in zip(parts, masks, strict=True)]
    return [torch.cat(each, dim) for each in zip(*found, strict=True)]


def _of_part(
    last_seen: int | None, scale: float, tensors: Sequence[Tensor], mask: Tensor | None
) -> Sequence[Tensor]:
    """Return the derivatives for G, q, k and v of some cases and heads."""
    g, q, k, v, a, b, c = tensors
    p = _probabilities(scale * q @ k.mT, mask, last_seen)

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


def _probabilities(scores: Tensor, mask: Tensor | None, last_seen: int | None) -> Tensor:
    """Return the softmax over what may be seen; nothing where that is nothing, as torch does."""
    if mask is not None:
        scores = scores + mask
    if last_seen is not None:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        seen = seen.tril(last_seen)
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
        found = found.reshape(cases, heads, found.shape[1] // heads, *sizes).sum(2)
    return found.to(like.dtype)
