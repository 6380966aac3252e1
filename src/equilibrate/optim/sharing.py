"""One gradient for the probe and for the step: `probe(loss, backward=True)`.

A probe by double backward begins with the gradient, which `loss.backward()` then computes again: a
quarter of a probe's cost. Where nothing but the parameters themselves waits for the gradient it can
be handed on instead. Whoever else waits (hooks of parameters, other leaves than the optimizer's,
other ranks) is served by an ordinary backward pass.
"""

from collections.abc import Sequence, Set

import torch
from torch import Tensor


def can_share(leaves: Set[Tensor], parameters: Sequence[Tensor]) -> bool:
    """Tell whether handing gradients to these parameters is all that a backward pass would do.

    `leaves` are all that it would give a gradient to.
    """
    own = set(parameters)
    hooked = any(p._backward_hooks or p._post_accumulate_grad_hooks for p in parameters)
    return not hooked and leaves <= own


@torch.no_grad()
def hand_on(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    """Add gradients to those of the parameters, as a backward pass does."""
    pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
    added = [(p.grad, g) for p, g in pairs if p.grad is not None]
    if added:
        torch._foreach_add_([own for own, _ in added], [g for _, g in added])
    new = [(p, g) for p, g in pairs if p.grad is None]
    if new:
        # Copies: several parameters may have been given one and the same tensor.
        made = [torch.empty_like(p, dtype=p.grad_dtype or g.dtype) for p, g in new]
        torch._foreach_copy_(made, [g for _, g in new])
        for (parameter, _), gradient in zip(new, made, strict=True):
            parameter.grad = gradient
