"""How far apart the diagonals are, over the whole model, with bias and chance in the interval."""

import torch
from torch import Tensor

from equilibrate.inspect.gradients import Gradients
from equilibrate.monitor.distances import Sums, jackknife
from equilibrate.monitor.interval import Interval
from equilibrate.monitor.layers import diagonal_error, pair_sums
from equilibrate.monitor.probes import Probes


def distances(probes: Probes, gradients: Gradients) -> dict[str, Interval]:
    """Return the cosine distance of each pair: sums over all elements, chance over the sample."""
    total: dict[str, Sums] = {}
    for i, mean in enumerate(probes.mean):
        sums = pair_sums(
            probes.mean_square[i].sqrt(),
            diagonal_error(probes.history(i)),
            mean,
            probes.jacobi_variance(i),
            gradients.mean_square[i].sqrt(),
            diagonal_error(gradients.history(i)),
        )
        total = _added(total, sums)
    return {
        pair: _widened(sums.distance(), _chance(probes, gradients, pair))
        for pair, sums in total.items()
    }


def _chance(probes: Probes, gradients: Gradients, pair: str) -> float:
    histories = [probes.history(i) for i in range(len(probes.mean))]

    def statistic(kept: Tensor) -> float:
        total = Sums()
        for i, history in enumerate(histories):
            h = history[kept]
            square, mean = h.square().mean(0), h.mean(0)
            variance = (square - mean.square()).clamp(min=0) / (len(h) - 1)
            gradient = gradients.history(i).square().mean(0).sqrt()
            sums = pair_sums(square.sqrt(), diagonal_error(h), mean, variance, gradient)
            total += sums[pair] * (probes.mean[i].numel() / max(1, h.shape[1]))
        return total.distance().value

    return jackknife(statistic, probes.count)


def _widened(interval: Interval, chance: float) -> Interval:
    two = 2 * chance if chance == chance else 0.0
    return Interval(interval.value, max(0.0, interval.low - two), min(1.0, interval.high + two))


def _added(total: dict[str, Sums], sums: dict[str, Sums]) -> dict[str, Sums]:
    return {pair: total.get(pair, Sums()) + each for pair, each in sums.items()}


def scaled_histories(probes: Probes) -> Tensor:
    """Return all sampled h, each layer's in units of its mean diagonal: (probes, elements)."""
    found = []
    for i in range(len(probes.mean)):
        h = probes.history(i)
        level = h.square().mean(0).sqrt().mean()
        found.append(h / level if bool(level > 0) else h)
    return torch.cat(found, 1)
