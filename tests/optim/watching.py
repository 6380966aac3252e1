"""What an optimizer holds, compared bit by bit: for tests that nothing changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def same(first: Any, second: Any) -> bool:
    """Tell whether two nested structures are equal to the bit, dtypes included; NaN equals NaN."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        alike = all(getattr(first, a) == getattr(second, a) for a in ("dtype", "shape", "layout"))
        return alike and torch.equal(_bits(first), _bits(second))
    if isinstance(first, dict) and isinstance(second, dict):
        return list(first) == list(second) and all(same(first[k], second[k]) for k in first)
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and bool(first == second)


def _bits(tensor: Tensor) -> Tensor:
    dense = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
    return dense.contiguous().view(-1).view(torch.uint8)


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _held(optimizer: Optimizer) -> dict[str, Any]:
    """A copy of all that a failed call must leave alone."""
    parameters = parameters_of(optimizer)
    position = {p: i for i, p in enumerate(parameters)}
    pending = optimizer._pending
    return deepcopy(
        {
            "parameters": [p.detach() for p in parameters],
            "gradients": [p.grad for p in parameters],
            "state": optimizer.state_dict(),
            "pending sums": {position[p]: total for p, total in pending.sums.items()},
            "pending parameters": [position[p] for p in pending.asked],
            "pending vectors": pending.vectors,
            "random state": torch.get_rng_state(),
        }
    )


@contextmanager
def unchanged(optimizer: Optimizer, *, but: tuple[str, ...] = ()) -> Iterator[None]:
    """Check that parameters, gradients, state, pending product and random state stay the same."""
    before = _held(optimizer)
    yield
    after = _held(optimizer)
    for name in before:
        assert name in but or same(before[name], after[name]), f"the {name} changed"
