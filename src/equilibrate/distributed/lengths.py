"""Inner products and norms of lists of tensors, over all shards."""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.distributed.shards import local, over_shards

# On a CPU a long float32 sum is added up in a few lanes, and 11 million squares came out wrong by
# 1e-3; in rows of this length by 4e-9, at the same speed. A GPU adds up in a tree.
_ROW = 4096
# Between these no float32 square that counts is lost, and none is infinite.
_LEAST, _MOST = 1e-10, 1e15


def inner(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """Return the inner product of two lists, over all shards; nan where any element is not finite.

    Example:
        >>> inner([torch.tensor([3.0, 4.0])], [torch.tensor([1.0, 2.0])])
        11.0
    """
    pairs = zip(first, second, strict=True)
    parts = [
        float((local(a.detach()).double() * local(b.detach()).double()).sum()) for a, b in pairs
    ]
    return sum(over_shards(first, parts)[0])


def norm(tensors: Sequence[Tensor]) -> float:
    """Return sqrt(inner(tensors, tensors)) to single precision, in one pass over memory.

    Devices are waited for once. Not a number where any element is not finite.

    Example:
        >>> norm([torch.tensor([3.0, 4.0]), torch.tensor(12.0)])
        13.0
    """
    parts = _squares([local(tensor.detach()) for tensor in tensors])
    quick = sum(over_shards(tensors, parts)[0]) ** 0.5
    return quick if _LEAST < quick < _MOST else float(inner(tensors, tensors) ** 0.5)


def _squares(tensors: Sequence[Tensor]) -> list[float]:
    """Return the sum of squares of every tensor."""
    alike: dict[tuple[torch.device, torch.dtype], list[int]] = defaultdict(list)
    for i, tensor in enumerate(tensors):
        alike[tensor.device, tensor.dtype].append(i)
    found = [0.0] * len(tensors)
    for (device, dtype), rows in alike.items():
        norms = norms_by_rows if device.type == "cpu" else norms_in_trees
        single = torch.promote_types(dtype, torch.float32)
        own = norms([tensors[i] for i in rows], single).double().square()
        for i, square in zip(rows, own.tolist(), strict=True):
            found[i] = square
    return found


def norms_in_trees(tensors: list[Tensor], dtype: torch.dtype) -> Tensor:
    """Return the norm of every tensor, in few launches."""
    return torch.stack(list(torch._foreach_norm(tensors, dtype=dtype)))


def norms_by_rows(tensors: list[Tensor], dtype: torch.dtype) -> Tensor:
    """Return the norm of every tensor, in double precision from those of rows in `dtype`."""
    return torch.stack([_by_rows(tensor.reshape(-1), dtype) for tensor in tensors])


def _by_rows(flat: Tensor, dtype: torch.dtype) -> Tensor:
    whole = flat.numel() // _ROW * _ROW
    rows = torch.linalg.vector_norm(flat[:whole].view(-1, _ROW), dim=1, dtype=dtype)
    rest = torch.linalg.vector_norm(flat[whole:], dtype=dtype)
    return torch.hypot(torch.linalg.vector_norm(rows.double()), rest.double())
