"""The second derivative of layer normalisation, in fewer passes over memory than torch takes.

With x^ = (x - mean) s, s = 1 / sqrt(variance + eps), y = w x^ + bias and G = dL/dy, along
directions a, b and c of the gradients of x, w and the bias,

    <a, dL/dx> + <b, dL/dw> + <c, dL/dbias> = <G, w t + b x^ + c>,   t = s (a - E a - x^ E[a x^]),

E the mean over what is normalised. With h = w G, e = b G, m = E[a x^], p = E[h x^] and
r = E[h (a - E a)] - m p its derivatives are

    for G:  w t + b x^ + c,     for w:  the sum of G t over cases,
    for x:  s (e - E e - x^ E[e x^]) - s^2 ((r - 2 m p) x^ + p (a - E a) + m (h - E h)).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from equilibrate.curvature.known_gradient import Tensors, known, node_behind


def replace(node: Any, leaving: Tensors, arriving: Any) -> Any:
    """Return the gradients that leave a layer normalisation with our node behind."""
    torchs = node_behind(leaving, "NativeLayerNormBackwardBackward0")
    if torchs is None:
        return None
    over = list(range(-len(torchs._saved_normalized_shape), 0))
    derivatives = partial(_derivatives, torchs._saved_mean, torchs._saved_rstd, over)
    of = torchs._saved_grad_out, torchs._saved_input, torchs._saved_weight
    return known(leaving, derivatives, *of)


def _derivatives(
    mean: Tensor,
    s: Tensor,
    over: list[int],
    of: Sequence[Any],
    along: Tensors,
    wanted: Sequence[bool],
) -> Tensors:
    """Compute in float32 at least."""
    dtype = torch.promote_types(s.dtype, torch.float32)
    given: list[Any] = [None if t is None else t.to(dtype) for t in (*of, *along)]
    g, x, w, a, b, c = given
    hat = (x - mean) * s
    h = g if w is None else w * g
    a = torch.zeros_like(x) if a is None else a - a.mean(over, keepdim=True)
    h = h - h.mean(over, keepdim=True)
    m, p = (a * hat).mean(over, keepdim=True), (h * hat).mean(over, keepdim=True)
    r = (h * a).mean(over, keepdim=True) - m * p
    t = s * (a - hat * m)
    for_x = -s * s * ((r - 2 * m * p) * hat + p * a + m * h)
    for_w = None if w is None else (g * t).sum_to_size(w.shape)
    for_g = t if w is None else w * t
    if b is not None:
        e = b * g
        e = e - e.mean(over, keepdim=True)
        for_x = for_x + s * (e - hat * (e * hat).mean(over, keepdim=True))
        for_g = for_g + b * hat
    for_g = for_g if c is None else for_g + c
    pairs = zip((for_g, for_x, for_w), of, strict=True)
    return [None if t is None else t.to(like.dtype) for t, like in pairs]
