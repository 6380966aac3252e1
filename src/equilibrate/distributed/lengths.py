"""Inner products and norms of lists of tensors, over all shards."""

from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.distributed.shards import local, over_shards

# On a CPU a norm in double precision copies the tensor first. Copies of this many elements stay in
# the cache; those of long tensors took longer than the norms.
_PIECE = 65536


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
    """Return sqrt(inner(tensors, tensors)); devices are waited for once.

    Nothing long is copied, but on a CPU tensors that are not contiguous.

    Example:
        >>> norm([torch.tensor([3.0, 4.0]), torch.tensor(12.0)])
        13.0
    """
    pieces = [_pieces(local(tensor.detach())) for tensor in tensors]
    squares = iter(_squares([piece for own in pieces for piece in own]))
    whole = [sum(next(squares) for _ in own) for own in pieces]
    return float(sum(over_shards(tensors, whole)[0]) ** 0.5)


def _pieces(tensor: Tensor) -> Sequence[Tensor]:
    held = tensor.numel()
    if held <= _PIECE or tensor.device.type != "cpu":
        return (tensor,) if held else ()
    return torch.split(tensor.reshape(-1), _PIECE)


def _squares(tensors: list[Tensor]) -> list[float]:
    """Return the sum of squares of every tensor, in few launches."""
    norms = torch._foreach_norm(tensors, dtype=torch.float64) if tensors else []
    found = [norm.to(norms[0].device) for norm in norms]
    squares: list[float] = torch.stack(found).square().tolist() if found else []
    return squares
