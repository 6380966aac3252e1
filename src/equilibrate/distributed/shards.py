"""Parameters cut into shards (DTensor: FSDP2's `fully_shard`, tensor parallel).

Arithmetic that treats every element alone runs on this rank's own part. Two things need the whole:
numbers summed up over a tensor, and the probe vector, whose elements are named by their place in
the whole tensor, so that every way of cutting draws the same vector.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from equilibrate.curvature import Distribution, draw_elements, draw_like

_PLAIN = {Tensor, nn.Parameter}


def is_sharded(tensor: Tensor) -> bool:
    """Tell whether a tensor is a DTensor, without importing what makes them."""
    if type(tensor) in _PLAIN:  # asked of every tensor in every step
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def all_plain(tensors: Iterable[Tensor]) -> bool:
    """Tell at once that no tensor is a DTensor, or any other kind of its own."""
    return {type(tensor) for tensor in tensors} <= _PLAIN


def local(tensor: Any) -> Tensor:
    """Return this rank's part of a tensor, sharing its memory."""
    part: Tensor = tensor.to_local() if is_sharded(tensor) else tensor
    return part


def cut_like(tensor: Any, like: Any) -> Tensor:
    """Return a tensor cut as `like` is: gradients may come as sums still to be added up."""
    if is_sharded(tensor) and tensor.placements != like.placements:
        tensor = tensor.redistribute(like.device_mesh, like.placements)
    same: Tensor = tensor
    return same


def over_shards(tensors: Sequence[Any], *columns: Sequence[float]) -> list[list[float]]:
    """Add up numbers over the shards of the tensors they belong to, in few collectives.

    Each column has one number for every tensor. Without shards nothing is sent.
    """
    found = [list(column) for column in columns]
    for _, members in _cut_alike(tensors).items():
        first = tensors[members[0]]
        mine = torch.tensor([[c[i] for i in members] for c in found], dtype=torch.float64)
        for i, whole in enumerate(_summed(mine, first).tolist()):
            for member, number in zip(members, whole, strict=True):
                found[i][member] = number
    return found


def _cut_alike(tensors: Sequence[Any]) -> dict[Any, list[int]]:
    """Return the positions of the sharded tensors, those on one mesh and cut alike together."""
    alike: dict[Any, list[int]] = {}
    for i, tensor in enumerate(tensors):
        if is_sharded(tensor):
            cuts = tuple(map(_cuts, tensor.placements))
            alike.setdefault((tensor.device_mesh, cuts), []).append(i)
    return alike


def _summed(numbers: Tensor, like: Any) -> Tensor:
    """Add numbers over the ranks that hold different parts of `like`."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    placements = [Partial() if _cuts(p) else Replicate() for p in like.placements]
    there = numbers.to(like.device_mesh.device_type)
    spread: Any = DTensor.from_local(there, like.device_mesh, placements, run_check=False)
    total: Tensor = spread.full_tensor()
    return total


def draw_part(
    distribution: Distribution, like: Any, *, seed: int, probe: int, parameter: int
) -> Tensor:
    """Draw this rank's part of the vector that `draw_like` draws for the whole parameter."""
    if not is_sharded(like):
        return draw_like(distribution, like, seed=seed, probe=probe, parameter=parameter)
    from torch.distributed.tensor import DTensor

    own = local(like)
    shape = tuple(like.shape) or (1,)
    places = [_indices(like, dim) for dim in range(like.ndim)] or [torch.zeros(1).long()]
    first, last = (int(places[0][0]), int(places[0][-1]) + 1) if own.numel() else (0, 0)
    row = math.prod(shape[1:])
    part = draw_elements(
        distribution,
        first * row,
        last * row,
        seed=seed,
        probe=probe,
        parameter=parameter,
        device=own.device,
    ).view(last - first, *shape[1:])
    for dim, wanted in enumerate(places):
        if own.numel() and len(wanted) != part.shape[dim]:
            part = part.index_select(dim, wanted - (first if dim == 0 else 0))
    drawn: Tensor = DTensor.from_local(
        part.reshape(own.shape).to(own.dtype),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
    return drawn


def _indices(like: Any, dim: int) -> Tensor:
    """Return which places along one dimension this rank holds."""
    from torch.distributed.tensor import Replicate, distribute_tensor

    cuts = [_cuts(p) and p.dim == dim for p in like.placements]
    placements = [
        _of_first_dimension(p) if cut else Replicate()
        for p, cut in zip(like.placements, cuts, strict=True)
    ]
    indices = torch.arange(like.shape[dim], device=like.device_mesh.device_type)
    held: Any = distribute_tensor(indices, like.device_mesh, placements, src_data_rank=None)
    return local(held)


def _cuts(placement: Any) -> bool:
    """Tell whether a placement cuts a dimension; torch's strided shard is a type of its own."""
    return hasattr(placement, "dim")


def _of_first_dimension(placement: Any) -> Any:
    """Return the same way of cutting, for a tensor of one dimension."""
    if hasattr(placement, "split_factor"):
        return type(placement)(0, split_factor=placement.split_factor)
    return type(placement)(0)
