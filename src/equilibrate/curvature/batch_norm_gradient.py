"""The second derivative of batch normalisation, in fewer passes over memory than torch takes.

With x^ = (x - mean) s, s = 1 / sqrt(variance + eps), y = w x^ + bias and G = dL/dy, along
directions a, b and c of the gradients of x, w and the bias,

    <a, dL/dx> + <b, dL/dw> + <c, dL/dbias> = <G, w t + b x^ + c>,   t = s (a - E a - x^ E[a x^]),

E the mean over all but the channels. With m = E[a x^], q = E[G x^], r = E[G a] - E[G] E[a] - m q
and n elements a channel its derivatives are

    for G:  w t + b x^ + c,     for w:  n s r,
    for x:  -(w s^2 (r - 2 m q) + b s q) x^ - w s^2 q (a - E a) + (b s - w s^2 m) (G - E G).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from equilibrate.curvature.known_gradient import Tensors, known, node_behind


def replace(node: Any, leaving: Tensors, arriving: Any) -> Any:
    """Return the gradients that leave a normalisation by its batch with our node behind."""
    torchs = node_behind(leaving, "NativeBatchNormBackwardBackward0")
    cudnns = node_behind(leaving, "CudnnBatchNormBackwardBackward0")
    if cudnns is not None:
        g, s = cudnns._saved_grad_output, cudnns._saved_save_var  # 1 / sqrt(variance + eps) too
    elif torchs is not None and torchs._saved_train:  # a linear function otherwise
        g, s = torchs._saved_grad_out, torchs._saved_save_invstd
    else:
        return None
    behind = cudnns or torchs
    derivatives = partial(_derivatives, behind._saved_save_mean, s)
    return known(leaving, derivatives, g, behind._saved_input, behind._saved_weight)


def _derivatives(
    mean: Tensor, s: Tensor, of: Sequence[Any], along: Tensors, wanted: Sequence[bool]
) -> Tensors:
    """Compute in the dtype of the statistics, float32 at least."""
    (g, x, w), dtype = of, s.dtype
    over = [i for i in range(x.dim()) if i != 1]
    one, none = torch.ones_like(s), torch.zeros_like(s)

    def wide(channels: Tensor) -> Tensor:
        return channels.view(-1, *[1] * (x.dim() - 2))

    a, b, c = (none if t is None else t.to(dtype) for t in along)
    a = torch.zeros_like(x, dtype=dtype) if along[0] is None else a
    g, w = g.to(dtype), one if w is None else w.to(dtype)
    hat = (x.to(dtype) - wide(mean)).mul_(wide(s))
    mean_a, mean_g = a.mean(over), g.mean(over)
    m, q = (a * hat).mean(over), (g * hat).mean(over)
    r = (a * g).mean(over) - mean_g * mean_a - m * q
    k = w * s
    for_g = a * wide(k) + hat * wide(b - k * m) + wide(c - k * mean_a)
    of_hat, of_a, of_g = -k * s * (r - 2 * m * q) - b * s * q, -k * s * q, b * s - k * s * m
    for_x = hat * wide(of_hat) + a * wide(of_a) + g * wide(of_g)
    for_x = for_x - wide(of_a * mean_a + of_g * mean_g)
    for_w = s * r * (x.numel() // len(s))
    of_w = None if of[2] is None else for_w.to(of[2].dtype)
    return for_g.to(of[0].dtype), for_x.to(x.dtype), of_w
