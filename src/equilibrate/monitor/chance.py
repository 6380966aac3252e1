"""What chance in the probes leaves open of a cosine distance: each of some groups is left out.

The sums of `distances.py` are those of all elements; their scatter is found on the sample of
elements whose every probe is kept. Fewer elements scatter more, so that a large layer's chance is
overstated, never understated, by that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from equilibrate.monitor.distances import Sums, jackknife_error, left_out
from equilibrate.monitor.layers import diagonal_error, pair_sums

Chances = dict[str, float]


@dataclass(frozen=True)
class Sample:
    """A layer's sampled elements: h of each probe, and the diagonals that probes do not make."""

    history: Tensor  # (probes, elements)
    equilibration: Tensor | None  # the optimizer's own, where it keeps one
    gradient: Tensor | None
    size: int  # elements of the whole layer

    def sums(self, kept: Tensor) -> dict[str, Sums]:
        """Return the sums of all pairs from some of the probes, at the size of the whole layer."""
        h = self.history[kept]
        square, mean = h.square().mean(0), h.mean(0)
        variance = (square - mean.square()).clamp(min=0) / max(1, len(h) - 1)
        own = self.equilibration is None
        diagonal = square.sqrt() if self.equilibration is None else self.equilibration
        error = diagonal_error(h) if own else 0.0
        found = pair_sums(diagonal, error, mean, variance, self.gradient)
        return {pair: sums * (self.size / max(1, h.shape[1])) for pair, sums in found.items()}


def chances(samples: Sequence[Sample]) -> tuple[list[Chances], Chances]:
    """Return the standard error of every pair's distance: of each layer, and over all layers.

    Fewer than three probes cannot tell, and give nothing: without one there is no variance left.
    """
    count = len(samples[0].history)
    rounds = [[s.sums(kept) for s in samples] for kept in left_out(count)] if count > 2 else []
    layers = [_errors([found[i] for found in rounds]) for i in range(len(samples))]
    return layers, _errors([added(found) for found in rounds])


def added(sums: Iterable[dict[str, Sums]]) -> dict[str, Sums]:
    """Return the sums of each pair over all layers that have it.

    Example:
        >>> added([{"a": Sums(1.0)}, {"a": Sums(2.0), "b": Sums(3.0)}])["a"].first
        3.0
    """
    total: dict[str, Sums] = {}
    for own in sums:
        for pair, each in own.items():
            total[pair] = total.get(pair, Sums()) + each
    return total


def _errors(rounds: Sequence[dict[str, Sums]]) -> Chances:
    pairs = rounds[0] if rounds else {}
    return {pair: jackknife_error([x[pair].distance().value for x in rounds]) for pair in pairs}
