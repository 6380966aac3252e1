"""Powers of two to measure in, where squares of the numbers themselves would overflow or vanish.

A loss times 2^k has a Hessian times 2^k. Float32 has no square of 2^80 or of 2^-80, though both are
ordinary numbers to it. Dividing by a power of two rounds nothing: what is measured in such a unit
is, to the bit, what it is at any other scale. The units are powers of four, so that their roots are
powers of two and round nothing either.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

_ORDINARY = 15  # from 4^-15 to 4^15 the largest element is left as it is: squares are harmless


def unit_of(tensors: Iterable[Tensor]) -> float:
    """Return a power of four near the largest |element|; 1 at ordinary scales, 0 if all are zero.

    Example:
        >>> unit_of([torch.tensor([3.0, -1000.0])]), unit_of([torch.tensor([-3 * 2.0**80])])
        (1.0, 4.835703278458517e+24)
    """
    sizes = [float(torch.linalg.vector_norm(t, math.inf)) for t in tensors if t.numel()]
    largest = max(sizes, default=0.0)
    if largest == 0:
        return 0.0
    power = math.frexp(largest)[1] // 2  # zero where it is not finite
    return 4.0**power if abs(power) > _ORDINARY else 1.0
