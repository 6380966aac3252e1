"""By which numbers a loss was multiplied: GradScaler's scale among them.

Read off the graph next to the loss, where products, quotients and sums of single numbers stand, so
that `scaler.scale(loss) / parts` and sums of scaled losses show it as well; a weight of one summand
is none of the loss's.
"""

import math
from typing import Any, TypeGuard

import torch
from torch import Tensor

# GradScaler starts at 65,536 and moves by halves and doubles; a person weighs a loss by less.
_LEAST_SCALE = 256

_ALONG = ("Mul", "Div", "Neg", "Sum", "Mean")
_ACROSS = ("Add", "Sub", "Stack", "Cat")
_DEEPEST = 16


def factors(loss: Tensor) -> list[Tensor]:
    """Return the tensors of one float32 number that a loss is a multiple of, every summand of it.

    Plain numbers do not count: torch keeps them in double precision, or as integers.

    Example:
        >>> import torch
        >>> loss = torch.ones((), requires_grad=True)
        >>> factors(torch.amp.GradScaler("cpu", init_scale=4.0).scale(loss) / 3)
        [tensor(4.)]
        >>> factors(loss * 4), factors(loss * torch.tensor(4.0) + loss)
        ([], [])
    """
    return _of(loss.grad_fn, _DEEPEST)


def _of(node: Any, depth: int) -> list[Tensor]:
    """Return the factors of what a node of the graph has computed."""
    kind = "" if node is None or not depth else node.name().partition("Backward")[0]
    inner = [following for following, _ in getattr(node, "next_functions", ()) if following]
    if kind in _ACROSS:
        return _common([_of(each, depth - 1) for each in inner])
    if kind not in _ALONG or not _is_single(node):
        return []
    own = [getattr(node, f"_saved_{side}", None) for side in ("self", "other")]
    found = [factor for factor in own if _counts(factor)] if kind == "Mul" else []
    for each in inner[:1] if kind == "Div" else inner:
        found += _of(each, depth - 1)
    return found


def _common(lists: list[list[Tensor]]) -> list[Tensor]:
    """Return what all lists hold, by the memory that it lies in."""
    places = [{factor.data_ptr() for factor in own} for own in lists]
    shared = set.intersection(*places) if places else set()
    return [factor for factor in (lists[0] if lists else ()) if factor.data_ptr() in shared]


def _is_single(node: Any) -> bool:
    return all(math.prod(result.shape) == 1 for result in node._input_metadata)


def _counts(factor: Any) -> TypeGuard[Tensor]:
    alone = isinstance(factor, Tensor) and factor.numel() == 1 and not factor.requires_grad
    return alone and factor.dtype is torch.float32


def is_a_scale(factor: float) -> bool:
    """Tell whether GradScaler may have made a factor: a large power of two.

    Example:
        >>> is_a_scale(65536.0), is_a_scale(100.0), is_a_scale(0.5)
        (True, False, False)
    """
    return factor >= _LEAST_SCALE and math.frexp(factor)[0] == 0.5
