"""How far apart the diagonals are, over the whole model, with bias and chance in the interval.

The batches at hand stand for all of them: a diagonal of eight batches is taken for eight draws from
the one that training would average, and its noise is taken out like that of the probes.
"""

import torch
from torch import Tensor

from equilibrate.inspect.gradients import Gradients
from equilibrate.monitor.chance import added
from equilibrate.monitor.distances import Sums, jackknife, widened
from equilibrate.monitor.interval import Interval
from equilibrate.monitor.layers import diagonal_error, pair_sums
from equilibrate.monitor.probes import Probes


def distances(probes: Probes, gradients: Gradients) -> dict[str, Interval]:
    """Return the cosine distance of each pair: sums over all elements, chance over the sample."""
    total: dict[str, Sums] = {}
    for i in range(probes.layers):
        mean, square, variance = probes.in_units(i)
        sums = pair_sums(
            square.sqrt(),
            diagonal_error(probes.history(i)),
            mean,
            variance,
            gradients.mean_square[i].sqrt(),
            diagonal_error(gradients.history(i)),
        )
        total = added([total, sums])
    return {
        pair: widened(sums.distance(), _chance(probes, gradients, pair))
        for pair, sums in total.items()
    }


def _chance(probes: Probes, gradients: Gradients, pair: str) -> float:
    """Return the standard error by leaving out batches; of a single one, groups of its probes."""
    histories = [probes.history(i) / probes.unit for i in range(probes.layers)]
    batch = torch.tensor(probes.batches)
    count = len(gradients.losses)

    def without_probes(kept: Tensor) -> float:
        return _sampled_distance(probes, histories, gradients, kept, torch.arange(count), pair)

    def without_batches(kept: Tensor) -> float:
        chosen = torch.isin(batch, kept).nonzero().flatten()
        return _sampled_distance(probes, histories, gradients, chosen, kept, pair)

    if count == 1:
        return jackknife(without_probes, probes.count)
    return jackknife(without_batches, count, groups=count)


def _sampled_distance(
    probes: Probes,
    histories: list[Tensor],
    gradients: Gradients,
    kept: Tensor,
    batches: Tensor,
    pair: str,
) -> float:
    """Return a distance from some of the probes and batches, over the sampled elements."""
    total = Sums()
    for i, history in enumerate(histories):
        h, g = history[kept], gradients.history(i)[batches]
        square, mean = h.square().mean(0), h.mean(0)
        variance = (square - mean.square()).clamp(min=0) / (len(h) - 1)
        root = g.square().mean(0).sqrt()
        sums = pair_sums(square.sqrt(), diagonal_error(h), mean, variance, root, diagonal_error(g))
        total += sums[pair] * (probes.in_units(i)[0].numel() / max(1, h.shape[1]))
    return total.distance().value


def scaled_histories(probes: Probes) -> Tensor:
    """Return all sampled h, each layer's in units of its mean diagonal: (probes, elements)."""
    found = []
    for i in range(probes.layers):
        h = probes.history(i) / probes.unit
        level = h.square().mean(0).sqrt().mean()
        found.append(h / level if bool(level > 0) else h)
    return torch.cat(found, 1)
