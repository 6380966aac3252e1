"""With momentum, the whole update may not outgrow its own running average.

    u = g / (D + damping), over all that moves with momentum;   n = sqrt(mean of u^2)
    f = min(1, c a / n), and 1 at the first step;   the momentum buffer takes f u instead of u
    a <- b a + (1 - b) f n,   b = min(0.998, 1 - 1/k), k counts the steps
    c = growth_limit, and 1.5 times that in the first 20 steps

D is measured once in 20 steps. When the loss rises in between, gradients grow ten-fold and more
while D is stale, and momentum adds such steps up. The limit has no unit: it compares an update with
those before it. A step of size zero, or one that is not finite, tells nothing: it is passed on as
it is and leaves the average alone.

n is the norm of u divided by the root of the number of elements, which f does not feel while the
same parameters move; where some join later, the average is still one of steps of their size.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

MEMORY = 0.998
EARLY, MORE = 20, 1.5  # so many first steps may grow so many times more: the average is young
NUMBERS: dict[str, Any] = {"memory": MEMORY, "early": EARLY, "more": MORE}

OF_GROUP = {"update_mean": torch.float64, "update_count": torch.int64}
"""What is kept, in every group and equal in all: the average a and the count k."""


def limit(size: float, mean: float, count: int, growth: float) -> tuple[float, float, int]:
    """Return f, and the average and the count after this step, from those before it.

    Example:
        >>> limit(3.0, mean=0.0, count=0, growth=2.0)
        (1.0, 3.0, 1)
        >>> limit(18.0, mean=3.0, count=1, growth=2.0)
        (0.5, 6.0, 2)
    """
    if not 0 < size < math.inf:  # nor is nan
        return 1.0, mean, count
    c = growth * MORE if count < EARLY else growth
    factor = min(1.0, c * mean / size) if count else 1.0
    b = min(MEMORY, 1 - 1 / (count + 1))
    return factor, b * mean + (1 - b) * factor * size, count + 1


def limit_(size: Tensor, mean: Tensor, count: Tensor, growth: float | Tensor) -> Tensor:
    """Return f as `limit` does, on the device; average and count are renewed in place.

    Nothing is read back, and a captured graph repeats it. With more than one element, each is an
    average of its own; an infinite `growth` limits nothing.

    Example:
        >>> mean, count = torch.tensor([3.0]), torch.tensor([1])
        >>> limit_(torch.tensor([18.0]), mean, count, 2.0), mean, count
        (tensor([0.5000]), tensor([6.]), tensor([2]))
    """
    fine = (size > 0) & (size < math.inf)
    allowed = torch.where(count < EARLY, MORE * growth * mean, growth * mean)
    factor = torch.where(fine & (count > 0), (allowed / size).clamp(max=1), 1.0)
    b = (1 - 1 / (count + 1).to(mean.dtype)).clamp(max=MEMORY)
    mean.copy_(torch.where(fine, b * mean + (1 - b) * factor * size, mean))
    count.add_(fine)
    return factor


def is_limited(group: Mapping[str, Any]) -> bool:
    """Tell whether a group takes part: else it is neither measured nor limited."""
    return bool(group["momentum"]) and group["growth_limit"] is not None
