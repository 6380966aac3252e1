"""The signs of `curvature.vectors` for many parameters in one launch, written once.

The same counter-based function: a word of 64 signs is the mixed counter of its place. Seed and
probe number are read from the device, so that a captured graph draws a new vector at each replay.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from equilibrate.kernels.blocks import BLOCK, TYPES, Plan, block_of, plan
from equilibrate.kernels.capture import capturing, keep

_PER_WORD = 64


class _Layout(NamedTuple):
    plan: Plan
    starts: tuple[int, ...]  # where each part begins in the whole, and where that ends
    strides: tuple[tuple[int, ...], ...]
    places: Tensor  # the starts on the device
    keys: Tensor  # the parameters' numbers on the device


@lru_cache(maxsize=64)
def _layout(
    shapes: tuple[torch.Size, ...], numbers: tuple[int, ...], device: torch.device
) -> _Layout:
    sizes = tuple(shape.numel() for shape in shapes)
    # First: it says what to do about a shape unseen before a capture.
    chart = plan(sizes, device, capturing(device))
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // _PER_WORD) * _PER_WORD)
    strides = tuple(torch.empty(shape, device="meta").stride() for shape in shapes)
    places, keys = torch.tensor(starts).to(device), torch.tensor(numbers).to(device)
    return _Layout(chart, tuple(starts), strides, places, keys)


def draw(
    likes: Sequence[Tensor], numbers: Sequence[int], *, seed: Tensor, probe: Tensor
) -> list[Tensor]:
    """Draw the signs of parameters of one device and dtype, which have these numbers.

    Each part has its parameter's shape and is contiguous, as `curvature.draw_like` makes it.
    """
    first = likes[0]
    shapes = tuple([like.shape for like in likes])
    layout = _layout(shapes, tuple(numbers), first.device)
    made = keep(layout, within=capturing(first.device))
    whole = torch.empty(made.starts[-1], dtype=first.dtype, device=first.device)
    _signs[(made.plan.blocks,)](
        whole,
        made.plan.table,
        made.places,
        made.keys,
        seed,
        probe,
        TYPE=TYPES[first.dtype],
        WORDS=BLOCK // _PER_WORD,
        num_warps=4,
    )
    parts = zip(shapes, made.strides, made.starts, strict=False)
    return [whole.as_strided(shape, stride, start) for shape, stride, start in parts]


@triton.jit
def _mix(words):
    words = (words ^ (words >> 30)) * 0xBF58476D1CE4E5B9
    words = (words ^ (words >> 27)) * 0x94D049BB133111EB
    return words ^ (words >> 31)


@triton.jit
def _unsigned(entry):
    return tl.load(entry).to(tl.uint64, bitcast=True)


@triton.jit
def _signs(whole, chart, starts, numbers, seed, probe, TYPE: tl.constexpr, WORDS: tl.constexpr):
    golden = tl.full((), 0x9E3779B97F4A7C15, tl.uint64)
    tensor, first, _ = block_of(chart, WORDS)
    key = _mix((_unsigned(seed) + 1) * golden)
    key = _mix(key + (_unsigned(probe) + 1) * golden)
    key = _mix(key + (_unsigned(numbers + tensor) + 1) * golden)
    word = first + tl.arange(0, WORDS)
    mixed = _mix(key + word.to(tl.uint64) * golden)
    column = tl.arange(0, 64)
    bit = (mixed[:, None] >> (column // 32 * 32 + 31 - column % 32)[None, :].to(tl.uint64)) & 1
    row = tl.multiple_of(tl.load(starts + tensor), 64) + word * 64
    inside = (row < tl.load(starts + tensor + 1))[:, None]  # whole words, so that stores are wide
    signs = (1.0 - 2.0 * bit.to(tl.float32)).to(TYPE)
    tl.store(whole + row[:, None] + column[None, :], signs, inside)
