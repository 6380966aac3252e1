"""Inner products and norms of lists of tensors, over all shards."""

from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.distributed.shards import local, over_shards


def inner(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """Return the inner product of two lists, over all shards, in double precision.

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
    """Return sqrt(inner(tensors, tensors)), without a copy, and devices are waited for once.

    Example:
        >>> norm([torch.tensor([3.0, 4.0]), torch.tensor(12.0)])
        13.0
    """
    own = [local(tensor.detach()) for tensor in tensors]
    held = [i for i, tensor in enumerate(own) if tensor.numel()]
    squares = [0.0] * len(own)
    if held:
        norms = torch._foreach_norm([own[i] for i in held], dtype=torch.float64)
        found = torch.stack([norm.to(norms[0].device) for norm in norms]).square().tolist()
        for i, square in zip(held, found, strict=True):
            squares[i] = square
    return float(sum(over_shards(tensors, squares)[0]) ** 0.5)
