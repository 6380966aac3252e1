"""The spectrum of a Hessian from a few hundred products, each number with its interval.

Two theorems give the intervals, both for normal start vectors and exact arithmetic:

- *Extreme eigenvalues.* The largest node is never above the largest eigenvalue, and after m steps
  it is more than a share e of the whole spread below it with probability at most
  1.648 sqrt(N) exp(-sqrt(e) (2 m - 1)) (Kuczynski & Wozniakowski 1992).
- *Shares.* The share F(x) of the spectral measure below a node lies between the sum of the weights
  before that node and the sum up to and with it (Chebyshev, Markov, Stieltjes). A start vector's
  measure differs from the share of eigenvalues by chance, with standard deviation
  sqrt(2 F (1 - F) / (N + 2)) <= sqrt(1 / (2 N + 4)); three of these are added on both sides.

The smallest |eigenvalue| cannot be had from products: a direction without curvature has none to
show. So the condition number here is that of a share of the directions: the largest |eigenvalue|
over the q-quantile of all of them. With q = 1/2 half of the directions are curved less than that.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from equilibrate.curvature.estimate import HessianOperator
from equilibrate.monitor.interval import Interval
from equilibrate.monitor.lanczos import Ritz, exact_ritz, lanczos

_RISK = 1e-3  # of an extreme eigenvalue outside its interval
_DEVIATIONS = 3.0


def spectrum(
    hessian: HessianOperator,
    parameters: Sequence[Tensor],
    *,
    diagonal: Sequence[Tensor] | None = None,
    steps: int = 60,
    starts: int = 2,
    seed: int = 0,
    told: Callable[[], object] = lambda: None,
) -> "Spectrum":
    """Measure the spectrum of D^-1/2 H D^-1/2 with `steps` times `starts` products at most.

    A model with no more parameters than that is measured axis by axis, and its spectrum exact.
    `told` is called after every product, for a progress bar.

    Example:
        >>> h = torch.arange(1.0, 201.0)
        >>> found = spectrum(lambda v: [h * v[0]], [torch.zeros(200)], steps=40)
        >>> 200.0 in found.largest, 2.0 in found.condition(0.5)
        (True, True)
    """

    def counted(vector: list[Tensor]) -> Sequence[Tensor]:
        product = hessian(vector)
        told()
        return product

    size = sum(p.numel() for p in parameters)
    if size <= steps * starts:
        return Spectrum((exact_ritz(counted, parameters, diagonal),), size)
    ritz = [
        lanczos(counted, parameters, steps=steps, diagonal=diagonal, seed=seed, start=number)
        for number in range(starts)
    ]
    return Spectrum(tuple(ritz), size)


@dataclass(frozen=True)
class Spectrum:
    """Nodes and weights of every start vector, and N; what they say about the eigenvalues."""

    ritz: tuple[Ritz, ...]
    size: int

    @property
    def complete(self) -> bool:
        """Whether every eigenvalue is known."""
        return self.ritz[0].exact and len(self.ritz[0].nodes) == self.size

    @property
    def largest(self) -> Interval:
        """The largest eigenvalue, the sharpness; the value is the largest node, a lower bound."""
        top, slack = max(float(r.nodes[-1]) for r in self.ritz), self._slack()
        return Interval(top, top - self._rounding(), top + slack)

    @property
    def smallest(self) -> Interval:
        """The smallest eigenvalue; the value is the smallest node, an upper bound."""
        bottom, slack = min(float(r.nodes[0]) for r in self.ritz), self._slack()
        return Interval(bottom, bottom - slack, bottom + self._rounding())

    @property
    def radius(self) -> Interval:
        """The largest |eigenvalue|."""
        ends = [self.largest, Interval(*(-x for x in _reversed(self.smallest)))]
        return Interval(*(max(getattr(e, n) for e in ends) for n in ("value", "low", "high")))

    def condition(self, quantile: float = 0.5) -> Interval:
        """The largest |eigenvalue| over the q-quantile of all of them; see the top of the file."""
        return self.radius / self.size_quantile(quantile)

    def size_quantile(self, quantile: float) -> Interval:
        """The q-quantile of |eigenvalue|: a share q of the directions is curved less."""
        if not 0 < quantile < 1:
            raise ValueError(f"quantile must be between 0 and 1, got {quantile}")
        sizes = torch.unique(torch.cat([r.nodes.abs() for r in self.ritz]))
        value, low, high = (self._mean(_within, sizes, side) for side in (0, -1, 1))
        noise = self._noise()
        if self.complete:
            return Interval(*[_first_at(sizes, value, quantile)] * 3)
        return Interval(
            _first_at(sizes, value, quantile),
            _before(sizes, high, quantile - noise),
            min(_first_at(sizes, low, quantile + noise), self.radius.high),
        )

    def share_below(self, bound: float) -> Interval:
        """The share of eigenvalues that are below a number."""
        at = torch.tensor([bound], dtype=torch.float64)
        value, low, high = (float(self._mean(_below, at, side)) for side in (0, -1, 1))
        noise = self._noise()
        return Interval(value, max(0.0, low - noise), min(1.0, high + noise))

    @property
    def negative_share(self) -> Interval:
        """The share of directions of negative curvature, beyond a hundredth of the radius.

        Without a threshold it would be a count of roundings: most directions of most networks are
        hardly curved at all, and finding out which way takes ever more products.
        """
        return self.share_below(-1e-2 * self.radius.value)

    def masses(self, edges: Tensor) -> Tensor:
        """The share of eigenvalues in each bin [edge_i, edge_i+1), for a histogram."""
        shares = [
            torch.histogram(r.nodes, edges.double(), weight=r.weights).hist for r in self.ritz
        ]
        return torch.stack(shares).mean(0)

    def _mean(self, function: "Share", at: Tensor, side: int) -> Tensor:
        return torch.stack([function(r, at, side) for r in self.ritz]).mean(0)

    def _noise(self) -> float:
        """What chance in the start vectors may move a share by."""
        if self.complete:
            return 0.0
        return _DEVIATIONS * math.sqrt(1 / ((2 * self.size + 4) * len(self.ritz)))

    def _rounding(self) -> float:
        """What float32 vectors may move an extreme node by."""
        return 1e-5 * max(float(r.nodes.abs().max()) for r in self.ritz)

    def _slack(self) -> float:
        """How far beyond the extreme nodes an eigenvalue may lie."""
        steps = min(len(r.nodes) for r in self.ritz)
        if all(r.exact for r in self.ritz):
            return self._rounding()
        # Each start vector errs on its own: all of them together with the product of the risks.
        risk = _RISK ** (1 / len(self.ritz))
        share = (math.log(1.648 * math.sqrt(self.size) / risk) / (2 * steps - 1)) ** 2
        seen = max(float(r.nodes[-1]) for r in self.ritz) - min(
            float(r.nodes[0]) for r in self.ritz
        )
        return share * seen / (1 - 2 * share) if share < 0.5 else math.inf


Share = Callable[[Ritz, Tensor, int], Tensor]


def _cumulative(ritz: Ritz, at: Tensor, side: int, *, right: bool) -> Tensor:
    """Return the share of the measure up to x: the sum of weights, or its lower or upper bound."""
    sums = torch.cat([torch.zeros(1, dtype=torch.float64), ritz.weights.cumsum(0)])
    count = torch.searchsorted(ritz.nodes, at, right=right)
    moved = count if ritz.exact else (count + side).clamp(0, len(ritz.nodes))
    return sums[moved]


def _below(ritz: Ritz, at: Tensor, side: int) -> Tensor:
    return _cumulative(ritz, at, side, right=False)


def _within(ritz: Ritz, at: Tensor, side: int) -> Tensor:
    """Return the share of the measure in [-x, x], or its lower or upper bound."""
    upper = _cumulative(ritz, at, side, right=True)
    return (upper - _cumulative(ritz, -at, -side, right=False)).clamp(0, 1)


def _first_at(sizes: Tensor, shares: Tensor, level: float) -> float:
    """Return the first size at which the share reaches a level; infinite where none does."""
    reached = (shares >= level - 1e-9).nonzero()  # sums of weights round
    return float(sizes[int(reached[0])]) if len(reached) else math.inf


def _before(sizes: Tensor, shares: Tensor, level: float) -> float:
    """Return the last size at which the share is certainly below a level; zero where none is."""
    below = (shares < level).nonzero()
    return float(sizes[int(below[-1])]) if len(below) else 0.0


def _reversed(interval: Interval) -> tuple[float, float, float]:
    return interval.value, interval.high, interval.low
