"""Gradients that a closure clips by their norm: apart from each other, and all of one length.

With r = |g+ - g-| / |g| for the gradients g+ and g- at theta + e v and theta - e v,

    |g+| - |g-| = r |g| cos(g, Hv),    (|g+| + |g-|) / 2 - |g| = r^2 |g| (1 - cos^2) / 8

of a quadratic. Clipped gradients have neither but for rounding, that of torch's `clip_grad_norm_`
among it. So clipping can be told from r on at which the second is more than twice that rounding.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

# What clipped lengths differ by was measured on a CPU, of 10 to 1e8 elements: 1.6 eps of their
# dtype and, but in double precision, 4e-12 for each element that is summed.
_ROUNDED, _SUMMED = 2.5, 1e-11
# torch divides by |g| + 1e-6: lengths clipped to c differ by 1e-6 r cos, whatever c is.
_OFFSET = 2e-6

CLIPS = (
    "The closure clips its gradients by their norm, so their differences measure the curvature of "
    "something else. Clip inside it only `if not optimizer.measuring` (in Lightning, in "
    "configure_gradient_clipping), or call optimizer.probe(loss) on the live loss. A loss whose "
    "gradient has one length everywhere, a distance or a sum of absolute values, looks the same."
)


@dataclass(frozen=True)
class Lengths:
    """The lengths of the gradients at the point, ahead and behind, and of what they are apart."""

    here: float
    ahead: float
    behind: float
    apart: float
    before: float | None = None  # ahead, at the measurement before

    def equal(self, rounding: float) -> bool:
        """Tell whether the three are of one length, as if clipped, and this says something.

        Example:
            >>> Lengths(1.0, 1.0, 1.0, apart=0.1).equal(1e-7)
            True
            >>> Lengths(1.0, 1.0025, 1.0, apart=0.1).equal(1e-7)
            False
            >>> Lengths(1.0, 1.0, 1.0, apart=1e-4).equal(1e-7)  # too near to each other to tell
            False
            >>> Lengths(0.0, 1.0, 1.0, apart=2.0).equal(1e-7)  # at a minimum
            False
        """
        if not self.telling(rounding) <= self.apart <= 3 * self.here:  # 2, were they of one length
            return False
        least = rounding * self.here + _OFFSET * self.apart / self.here
        mean = (self.ahead + self.behind) / 2
        return abs(self.ahead - self.behind) < least and abs(self.here - mean) < least

    def as_before(self, rounding: float) -> bool:
        """Tell whether an earlier measurement saw the same length, or there was none.

        Example:
            >>> Lengths(1.0, 1.0, 1.0, apart=0.0, before=1.5).as_before(1e-7)
            False
        """
        return self.before is None or meet(self.ahead, self.before, rounding)

    def telling(self, rounding: float) -> float:
        """Return what they must be apart by: r^2 |g| / 8 is then twice what rounding makes.

        Example:
            >>> f"{Lengths(1.0, 1.0, 1.0, apart=0.1).telling(3e-7):.1e}"
            '2.2e-03'
        """
        half = 8 * _OFFSET
        return half + math.sqrt(half**2 + 16 * rounding * self.here**2)

    def wider(self, rounding: float, relative: float, farthest: float) -> float | None:
        """Return a displacement that tells, where this one was too small to.

        None where this one told, or none up to the farthest would.
        """
        least = self.telling(rounding)
        if not 0 < self.apart < least:
            return None
        needed = 1.5 * relative * least / self.apart  # gradients may turn less farther out
        return needed if needed <= farthest else None


def meet(ahead: float, behind: float, rounding: float) -> bool:
    """Tell whether the lengths ahead and behind are close enough for `Lengths.equal` to be asked.

    Most are not, which spares the other two lengths: a bound on what `equal` allows, r being 3 at
    most.

    Example:
        >>> meet(1.0, 1.0, 1e-7), meet(1.0, 1.01, 1e-7)
        (True, False)
    """
    return abs(ahead - behind) < rounding * (ahead + behind) + 4 * _OFFSET


def rounding(dtypes: Iterable[torch.dtype], elements: int) -> float:
    """Return what lengths of clipped gradients differ by, relatively, at most.

    Example:
        >>> f"{rounding([torch.float32], 100):.1e}"
        '3.0e-07'
    """
    eps = max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)
    double = eps <= torch.finfo(torch.float64).eps
    return _ROUNDED * eps + (0.0 if double else _SUMMED * elements)
