"""How far a measured equilibration diagonal is off, and by what: the probes, or the batches.

One probe's square scatters around D^2 with a relative variance c = Var(h^2) / D^4, at most 2 and
near it where no element of the row stands out. So k probes leave the relative error
sqrt(c / k) / 2 in D, near 0.71 / sqrt(k). Where several batches were probed, their own difference
adds a part that more probes on the same batch do not remove.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.monitor.units import unit_of

# Elements whose mean square is below this part of the layer's mean are left out: dead ones.
_FLOOR = 1e-12


def one_probe_error(history: Tensor, batches: Sequence[int] | None = None) -> float:
    """Return sqrt(c) / 2: the relative error of D from a single probe, over a layer's elements.

    `history` is h, (probes, elements). The unbiased variance of h^2 over the mean's square less
    its own variance; both are summed over elements with weights 1 / D^4, so that each counts alike.
    With `batches`, the batch of each probe, both are those within a batch.

    Example:
        >>> h = torch.tensor([[1.0], [-1.0], [1.0]])
        >>> one_probe_error(h)
        0.0
    """
    square = _live_squares(history)
    level = square.mean(0).square()
    share = total = 0.0
    for own in _by_batch(square, batches):
        if len(own) < 2 or not own.numel():
            return math.nan
        variance = own.var(0)
        signal = (own.mean(0).square() - variance / len(own)).clamp(min=0)
        share += float((variance / level).sum())
        total += float((signal / level).sum())
    return math.sqrt(share / total) / 2 if total > 0 else math.nan


def error_by_probes(
    history: Tensor, counts: Sequence[int], batches: Sequence[int] | None = None
) -> list[float]:
    """Return the relative error of one batch's D after each of these numbers of probes.

    Measured on the probes at hand: means of k probes are compared between disjoint groups of k of
    the same batch, which needs 2 k of them; past that the law sqrt(c / k) / 2 goes on. At one
    probe the root of a single square scatters less than the law says: 0.60 for normals, not 0.71.

    Example:
        >>> h = torch.tensor([[1.0], [-1.0], [3.0], [3.0]])
        >>> error_by_probes(h, [1, 2, 8], batches=[0, 0, 1, 1])
        [0.0, 0.0, 0.0]
    """
    square, one = _live_squares(history), one_probe_error(history, batches)
    own = _by_batch(square, batches)
    fewest = min(map(len, own)) if square.numel() else 0
    return [
        _grouped(own, square.mean(0), k) if fewest >= 2 * k else one / math.sqrt(k) for k in counts
    ]


def _grouped(own: list[Tensor], level: Tensor, k: int) -> float:
    """Return the scatter of D by k probes within the same batch, over the D of all."""
    spread = []
    for square in own:
        groups = len(square) // k
        spread.append(square[: groups * k].reshape(groups, k, -1).mean(1).sqrt().var(0))
    return math.sqrt(float((torch.stack(spread).mean(0) / level).mean()))


def _by_batch(square: Tensor, batches: Sequence[int] | None) -> list[Tensor]:
    if batches is None:
        return [square]
    return [square[torch.tensor([b == name for b in batches])] for name in sorted(set(batches))]


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
    groups = _by_batch(square, batches)
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
