"""How far a measured equilibration diagonal is off, and by what: the probes, or the batches.

One probe's square scatters around D^2 with a relative variance c = Var(h^2) / D^4, at most 2 and
near it where no element of the row stands out. So k probes leave the relative error
sqrt(c / k) / 2 in D, near 0.71 / sqrt(k). Where several batches were probed, their own difference
adds a part that more probes on the same batch do not remove.
"""

import math

import torch
from torch import Tensor

from equilibrate.monitor.units import unit_of

# Elements whose mean square is below this part of the layer's mean are left out: dead ones.
_FLOOR = 1e-12


def one_probe_error(history: Tensor) -> float:
    """Return sqrt(c) / 2: the relative error of D from a single probe, over a layer's elements.

    `history` is h, (probes, elements). The unbiased variance of h^2 over the mean's square less
    its own variance; both are summed over elements with weights 1 / D^4, so that each counts alike.

    Example:
        >>> h = torch.tensor([[1.0], [-1.0], [1.0]])
        >>> one_probe_error(h)
        0.0
    """
    square = _live_squares(history)
    if square.shape[0] < 2 or not square.numel():
        return math.nan
    variance = square.var(0)
    level = (square.mean(0).square() - variance / len(square)).clamp(min=0)
    total = float((level / square.mean(0).square()).sum())
    share = float((variance / square.mean(0).square()).sum())
    return math.sqrt(share / total) / 2 if total > 0 else math.nan


def error_by_probes(history: Tensor, counts: list[int]) -> list[float]:
    """Return the relative error of D after each of these numbers of probes.

    Measured on the probes at hand: means of k probes are compared between disjoint groups of k,
    which needs 2 k of them; past that the law sqrt(c / k) / 2 goes on.

    Example:
        >>> h = torch.tensor([[1.0], [-1.0], [1.0], [1.0]])
        >>> error_by_probes(h, [1, 2, 8])
        [0.0, 0.0, 0.0]
    """
    return [_grouped(history, k) for k in counts]


def _grouped(history: Tensor, k: int) -> float:
    groups = len(history) // k
    if groups < 2:
        return one_probe_error(history) / math.sqrt(k)
    square = _live_squares(history)
    if not square.numel():
        return math.nan
    roots = square[: groups * k].reshape(groups, k, -1).mean(1).sqrt()
    best = square.mean(0)
    return math.sqrt(float((roots.var(0) / best).mean()))


def batch_error(history: Tensor, batches: list[int]) -> tuple[float, float]:
    """Return the relative error of one batch's D by its few probes, and by the batch itself.

    D^2 of batch b is estimated by the mean of its k probes; these means scatter by the probes,
    Var(h^2 within a batch) / k, and by the batches, which is what is left over.

    Example:
        >>> h = torch.tensor([[1.0], [-1.0], [3.0], [3.0]])
        >>> [round(x, 2) for x in batch_error(h, [0, 0, 1, 1])]
        [0.0, 0.57]
    """
    square = _live_squares(history)
    names = sorted(set(batches))
    groups = [square[torch.tensor([b == name for b in batches])] for name in names]
    if len(groups) < 2 or min(map(len, groups)) < 2 or not square.numel():
        return math.nan, math.nan
    level = square.mean(0).square()
    within = torch.stack([g.var(0) / len(g) for g in groups]).mean(0)
    between = torch.stack([g.mean(0) for g in groups]).var(0) - within
    probes, batch = (float((v / level).mean()) for v in (within, between))
    return math.sqrt(max(0.0, probes)) / 2, math.sqrt(max(0.0, batch)) / 2


def _live_squares(history: Tensor) -> Tensor:
    """Return h^2, in some unit, of the elements that were seen to be curved."""
    square = (history / (unit_of([history]) or 1.0)).square()
    mean = square.mean(0)
    return square[:, mean > _FLOOR * mean.mean()]
