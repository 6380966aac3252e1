"""Cosine distances between diagonals, with the noise of a few probes taken out (section 8.2).

|mean of v * Hv| of a few probes is mostly the size of its own noise, and noise alone has cosine
distance 1 - sqrt(2 / pi) = 0.20 from equilibration. With a mean m = H_ii + noise of known standard
error s, three sums are de-noised:

- the squared norm: E[m^2] = H_ii^2 + s^2, so s^2 is subtracted;
- the product with another diagonal w: E|m| lies between |H_ii| and |H_ii| + s sqrt(2 / pi)
  (the folded normal), so w |m| and w (|m| - s sqrt(2 / pi)) bound it; in between, |m| less the
  excess b of a folded normal at 0.7 |m| / s is taken for the value: no function of m is without
  bias, this one's is below 0.4 s everywhere, below 0.17 s past s, and of either sign;
- a root of a mean square, sqrt(mean h^2), is short by a share r^2 / 2, r its relative error. Put
  back is that of all elements alike; the few that a norm consists of may be short by nothing, as
  where the diagonal dominates its row, so that the lower bound leaves it out.

The bounds cover the bias. Chance comes on top: it shrinks with the number of elements summed over,
and is added as two of its standard deviations by leaving out groups of probes (`jackknife`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from equilibrate.monitor.blocks import total_product
from equilibrate.monitor.interval import Interval

_FOLDED = math.sqrt(2 / math.pi)
_TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class Sums:
    """What a cosine needs of a layer; layers add up to the whole model."""

    first: float = 0.0
    second: float = 0.0
    product: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(*(getattr(self, n) + getattr(other, n) for n in self.__dataclass_fields__))

    def __mul__(self, factor: float) -> "Sums":
        return Sums(*(getattr(self, n) * factor for n in self.__dataclass_fields__))

    def distance(self) -> Interval:
        """Return one minus the cosine, with the bounds of its bias."""
        norms = math.sqrt(max(0.0, self.first) * max(0.0, self.second))
        if norms == 0:
            return Interval(math.nan, 0.0, 1.0)
        cosines = [min(1.0, max(0.0, x / norms)) for x in (self.product, self.low, self.high)]
        value = min(max(cosines[0], cosines[1]), cosines[2])
        return Interval(1 - value, 1 - cosines[2], 1 - cosines[1])


def with_jacobi(diagonal: Tensor, mean: Tensor, variance: Tensor, error: float = 0.0) -> Sums:
    """Compare a diagonal of relative error `error` with |H_ii|, known as a mean and its variance.

    Example:
        >>> d = torch.ones(4)
        >>> with_jacobi(d, torch.tensor([1.0, -1.0, 1.0, 1.0]), torch.zeros(4)).distance().value
        0.0
    """
    lift = 1 + error**2 / 2
    noise = variance.sqrt()
    high = total_product(diagonal, mean.abs())
    clean = mean.abs() - noise * _excess(0.7 * mean.abs() / noise.clamp(min=_TINY))
    return Sums(
        first=total_product(diagonal, diagonal),
        second=total_product(mean, mean) - total_product(variance),
        product=lift * total_product(diagonal, clean),
        low=high - _FOLDED * total_product(diagonal, noise),
        high=lift * high,
    )


def between_roots(first: Tensor, second: Tensor, errors: tuple[float, float] = (0.0, 0.0)) -> Sums:
    """Compare two diagonals that are roots of mean squares, with their relative errors.

    Example:
        >>> between_roots(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])).distance().value
        1.0
    """
    lift = (1 + errors[0] ** 2 / 2) * (1 + errors[1] ** 2 / 2)
    low = total_product(first, second)
    high = lift * low
    return Sums(total_product(first, first), total_product(second, second), high, low, high)


def noise_share(mean: Tensor, variance: Tensor) -> float:
    """Return how much of the norm of |mean| is noise, from 0 to 1.

    Example:
        >>> round(noise_share(torch.ones(2), torch.full((2,), 0.25)), 2)
        0.5
    """
    total = total_product(mean, mean)
    return math.sqrt(min(1.0, total_product(variance) / total)) if total > 0 else math.nan


def jackknife(statistic: Callable[[Tensor], float], probes: int, groups: int = 8) -> float:
    """Return the standard error of a statistic of probes, by leaving out each of several groups.

    `statistic` takes the numbers of the probes that are kept.

    Example:
        >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0])
        >>> round(jackknife(lambda kept: float(x[kept].mean()), probes=4, groups=4), 4)
        0.6455
    """
    return jackknife_error([statistic(kept) for kept in left_out(probes, groups)])


def left_out(probes: int, groups: int = 8) -> list[Tensor]:
    """Return the numbers of the probes that are kept, as each of several groups is left out.

    Example:
        >>> left_out(3)
        [tensor([1, 2]), tensor([0, 2]), tensor([0, 1])]
    """
    everyone = torch.arange(probes)
    groups = min(groups, probes)
    return [everyone[everyone % groups != group] for group in range(groups)]


def jackknife_error(found: Sequence[float]) -> float:
    """Return the standard error of a statistic from its values as each group was left out.

    Example:
        >>> round(jackknife_error([3.0, 2.5, 2.0]), 4), jackknife_error([1.0])
        (0.5774, nan)
    """
    if len(found) < 2:
        return math.nan
    values = torch.tensor(found, dtype=torch.float64)
    share = (len(found) - 1) / len(found)
    return math.sqrt(share * float((values - values.mean()).square().sum()))


def widened(distance: Interval, chance: float) -> Interval:
    """Add two standard deviations of chance to both sides; unknown chance leaves 0 to 1.

    Example:
        >>> str(widened(Interval(0.5, 0.4, 0.6), 0.05))
        '0.5 [0.3, 0.7]'
    """
    if math.isnan(chance):
        return Interval(distance.value, 0.0, 1.0)
    low, high = distance.low - 2 * chance, distance.high + 2 * chance
    return Interval(distance.value, max(0.0, low), min(1.0, high))


def _excess(x: Tensor) -> Tensor:
    """Return E|x + z| - x for a standard normal z and x >= 0."""
    return _FOLDED * torch.exp(-x.square() / 2) - x * torch.erfc(x / math.sqrt(2))
