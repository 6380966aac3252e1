"""Medians with bootstrap intervals: what a claim says about a hundred random problems."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Median:
    """A median, its 95% percentile bootstrap interval, and how many values it is of."""

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.value:.2g} [{self.low:.2g}, {self.high:.2g}]"


def bootstrap_median(values: Sequence[float], *, draws: int = 2000, seed: int = 0) -> Median:
    """Return the median of independent values with its interval (Efron 1979, percentiles).

    Example:
        >>> bootstrap_median([1.0, 2.0, 3.0]).value
        2.0
    """
    sample = torch.tensor(values, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(len(sample), (draws, len(sample)), generator=generator)
    medians = sample[chosen].quantile(0.5, dim=1)
    low, high = medians.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Median(float(sample.quantile(0.5)), low, high, len(sample))
