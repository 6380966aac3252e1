"""A sum over a run of numbers, added in a fixed order: the same bits always."""

import triton
import triton.language as tl


@triton.jit
def sum_of(numbers, count, BLOCK: tl.constexpr):
    """Return the sum of so many numbers from an address on, in their own dtype."""
    found = tl.zeros((BLOCK,), numbers.dtype.element_ty)
    start = 0
    while start < count:
        place = start + tl.arange(0, BLOCK)
        found += tl.load(numbers + place, place < count, 0)
        start += BLOCK
    return tl.sum(found)
