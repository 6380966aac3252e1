"""Gradients that are known already, with a node of ours behind them in the place of torch's."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Tensors = Sequence[Tensor | None]
# From what gradients were computed of, and a direction along each, to the derivatives of the sum of
# <direction, gradient> for each of what they were computed of that is wanted.
Derivatives = Callable[[Sequence[Any], Sequence[Any], Sequence[bool]], Tensors]


def known(leaving: Tensors, derivatives: Derivatives, *of: Tensor | None) -> tuple[Any, ...]:
    """Return the same gradients as functions of `of`, differentiated by `derivatives`."""
    values = [None if g is None else g.detach() for g in leaving]
    made = _Known.apply(derivatives, len(of), *of, *values)  # type: ignore[no-untyped-call]
    return tuple(made)


def node_behind(leaving: Tensors, name: str) -> Any:
    """Return torch's node behind gradients; None if they are constant, or somebody's hook's."""
    nodes: list[Any] = [g.grad_fn for g in leaving if g is not None]
    return nodes[0] if {type(node).__name__ for node in nodes} == {name} else None


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, derivatives: Derivatives, count: int, *tensors: Tensor | None) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors[:count])
        ctx.derivatives, ctx.values = derivatives, len(tensors) - count
        return tensors[count:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *along: Tensor | None) -> Any:
        of = ctx.saved_tensors
        with torch.autocast(of[0].device.type, enabled=False):
            found = ctx.derivatives(of, along, ctx.needs_input_grad[2:])
        return None, None, *found, *[None] * ctx.values
