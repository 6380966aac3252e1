"""Many tensors in one launch: which block belongs to which tensor, and where the tensors lie.

Every tensor is cut into blocks of equal length; a program takes one block. Two small tables on the
device tell it what to do: the *plan* (block -> tensor, place), which follows from the sizes alone,
and the *addresses*. A table of addresses is written by a kernel whose arguments they are: nothing
is copied from the host. Inside a captured graph a table that was written before, that of parameters
and diagonals, is taken as it is; that of the gradients, which are made there, is part of the graph.
"""

from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_

import torch
import triton
import triton.language as tl
from torch import Tensor

from equilibrate.kernels.capture import Remembered, capturing, keep

BLOCK = 4096
_AT_ONCE = 64  # addresses written by one launch

TYPES = {
    torch.float64: tl.float64,
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
}


@dataclass(frozen=True, eq=False)
class Plan:
    """Which tensor a block belongs to, its place there, and the sizes: tables on a device."""

    table: Tensor  # the owner of each block, its place, the size of each tensor: one argument
    first: Tensor  # the number of each tensor's first block, and the number of blocks at the end
    blocks: int  # their number, which is the size of a launch


def plan(sizes: tuple[int, ...], device: torch.device, within: bool) -> Plan:
    """Return the plan for tensors of these sizes; made once, never `within` a capture."""
    return keep(_plan(sizes, device), within)


@lru_cache(maxsize=64)
def _plan(sizes: tuple[int, ...], device: torch.device, block: int = BLOCK) -> Plan:
    if capturing(device):
        raise RuntimeError(
            "This step's tensors were not seen before the capture. Make a few ordinary iterations, "
            "a probing one among them, before capturing a graph."
        )
    size = torch.tensor(sizes, dtype=torch.int64)
    counts = (size + block - 1) // block
    first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(len(sizes)), counts)
    place = torch.arange(len(owner)) - first[owner]
    table = torch.cat([owner, place, size])
    return Plan(table.to(device), first.to(device), blocks=len(owner))


def tables(
    device: torch.device, sizes: tuple[int, ...], *addresses: tuple[int, ...]
) -> tuple[Plan, tuple[Tensor, ...], bool]:
    """Return the plan for tensors of these sizes, and a table for each list of addresses.

    And whether every tensor begins at a multiple of 16 bytes: then loads may be that wide.
    """
    within = capturing(device)  # asked once for all of them
    chart = plan(sizes, device, within)
    found = [_table(places, device, within=within) for places in addresses]
    written, aligned = zip(*found, strict=True)
    return chart, written, all(aligned)


def _written(numbers: tuple[int, ...], device: torch.device) -> tuple[Tensor, bool]:
    """Write a new table, a fixed number of addresses a launch: one kernel serves all lengths."""
    launches = -(-len(numbers) // _AT_ONCE)
    padded = numbers + numbers[-1:] * (launches * _AT_ONCE - len(numbers))
    table = torch.empty(len(padded), dtype=torch.int64, device=device)
    parts = (table,) if launches == 1 else table.split(_AT_ONCE)
    for i, part in enumerate(parts):
        _write[(1,)](part, padded[i * _AT_ONCE : (i + 1) * _AT_ONCE])
    return table, not reduce(or_, numbers) % 16


_table = Remembered(_written, most=512)  # some for every group


@triton.jit
def _write(table, numbers):
    for i in tl.static_range(len(numbers)):
        tl.store(table + i, numbers[i])


@triton.jit
def block_of(chart, BLOCK: tl.constexpr):
    """Return the tensor of this program's block, where in it the block starts, and what is left."""
    program, blocks = tl.program_id(0), tl.num_programs(0)
    tensor = tl.load(chart + program)
    start = tl.load(chart + blocks + program) * BLOCK
    return tensor, start, tl.load(chart + 2 * blocks + tensor) - start


@triton.jit
def at(entry, TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    """Return the address in a table's entry as a pointer."""
    pointer = tl.load(entry).to(tl.pointer_type(TYPE))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer
