"""By which numbers a loss was multiplied: GradScaler's scale among them.

Read off the graph next to the loss, where products, quotients and sums of single numbers stand, so
that `scaler.scale(loss) / parts` and sums of scaled losses show it as well.
"""

import math
from typing import Any, TypeGuard

import torch
from torch import Tensor

# GradScaler starts at 65,536 and moves by halves and doubles; a person weighs a loss by less.
_LEAST_SCALE = 256

_FOLLOWED = {
    f"{name}Backward{kind}" for name in ("Mul", "Div", "Add", "Sub", "Neg") for kind in (0, 1)
}
_MOST = 32  # nodes that are looked at


def factors(loss: Tensor) -> list[Tensor]:
    """Return the tensors of one float32 number that a loss, or a part of it, is a multiple of.

    Plain numbers do not count: torch keeps them in double precision, or as integers.

    Example:
        >>> import torch
        >>> loss = torch.ones((), requires_grad=True)
        >>> factors(torch.amp.GradScaler("cpu", init_scale=4.0).scale(loss) / 3)
        [tensor(4.)]
        >>> factors(loss * 4)
        []
    """
    found: list[Tensor] = []
    waiting: list[Any] = [loss.grad_fn]
    for node in waiting:  # grows on the way
        if node is None or node.name() not in _FOLLOWED or not _is_single(node):
            continue
        if node.name().startswith("Mul"):
            saved = (getattr(node, f"_saved_{side}", None) for side in ("self", "other"))
            found += filter(_counts, saved)
        following = [inner for inner, _ in node.next_functions]
        waiting += following[: _MOST - len(waiting)]
    return found


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
