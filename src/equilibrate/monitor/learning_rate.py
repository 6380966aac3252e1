"""A learning rate for ESGD from curvature alone: two over the spectral radius of D^-1 H.

On the quadratic model of the loss a step theta <- theta - lr D^-1 g multiplies the error along an
eigenvector of D^-1 H by 1 - lr lambda, so that it grows where lr lambda > 2. The radius takes
|lambda|: at the start of training negative curvature is often as large as positive, and turns
positive later. D is as large as the rows of H, so that the radius, at most sqrt(N), says how many
coordinates pull together: this is what a learning rate without a unit means.

The model is that of one batch at one point. Training moves to where curvature is larger (it
sharpens up to the edge of stability), noise asks for less, averaging over a run for more: take the
number as the middle of a search. How far off it was is measured in docs/momentum.md.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from equilibrate.curvature import LossHessian
from equilibrate.diagonals import estimate_equilibration
from equilibrate.monitor.lanczos import lanczos
from equilibrate.rules.reference import denominator


@dataclass(frozen=True)
class SuggestedRate:
    """A learning rate and the extreme eigenvalues of D^-1 H that it rests on."""

    lr: float
    smallest: float
    largest: float
    products: int  # that it took

    def __str__(self) -> str:
        return (
            f"lr {self.lr:.2g}: the eigenvalues of D^-1 H reach from {self.smallest:.3g} to "
            f"{self.largest:.3g}, and 2 over the largest size is {self.lr:.2g}. Search around it, "
            f"a factor of three to both sides."
        )


def suggest_learning_rate(
    loss: Tensor,
    parameters: Iterable[Tensor],
    *,
    damping: float = 1e-2,
    probes: int = 20,
    steps: int = 12,
    seed: int = 0,
) -> SuggestedRate:
    """Return 2 / max |lambda(D^-1 H)|, by `probes` products for D and `steps` for the eigenvalue.

    Call it before training, on the loss of one batch; nothing is changed, the loss can still be
    probed and backpropagated. Lanczos' value is never above the true radius and after a dozen steps
    a few percent below it (`monitor.spectrum` gives an interval).

    Args:
        loss: a live scalar loss.
        parameters: those that ESGD will train.
        damping: ESGD's, relative to each tensor's mean diagonal.
        probes: random vectors for D, as many as ESGD's warm-up takes.
        steps: of Lanczos' recursion.
        seed: of all random vectors.

    Example:
        >>> import torch
        >>> w = torch.ones(3, requires_grad=True)
        >>> loss = (torch.tensor([1.0, 10.0, 100.0]) * w**2).sum() / 2
        >>> found = suggest_learning_rate(loss, [w], damping=0.0)
        >>> round(found.lr, 4)  # D is H itself: one step of lr 1 solves it, 2 is the limit
        2.0
    """
    own = [p for p in parameters if p.requires_grad]
    hessian = LossHessian(loss, own)
    found = estimate_equilibration(
        hessian, own, probes=probes, distribution="rademacher", seed=seed
    )
    if not all(bool(d.isfinite().all()) for d in found.value):
        raise ValueError(
            "the curvature is not finite at this batch, so that it suggests no learning rate; "
            "check that the loss is finite and twice differentiable here"
        )
    nodes = lanczos(
        hessian, own, steps=steps, diagonal=_denominators(found.value, damping), seed=seed
    ).nodes
    smallest, largest = float(nodes.min()), float(nodes.max())
    radius = max(abs(smallest), abs(largest))
    lr = 2 / radius if radius > 0 else math.inf
    return SuggestedRate(lr, smallest, largest, probes + steps)


def _denominators(diagonals: list[Tensor], damping: float) -> list[Tensor]:
    """Return D plus a share of its mean, tensor by tensor; the mean where D is zero."""
    seen = sum(int((d > 0).sum()) for d in diagonals)
    everywhere = sum(float(d.sum()) for d in diagonals) / max(1, seen)
    result = []
    for diagonal in diagonals:
        count = int((diagonal > 0).sum())
        mean = float(diagonal.sum()) / count if count else everywhere
        # A loss without any curvature leaves ones: every eigenvalue is zero.
        result.append(denominator(diagonal, damping * mean, mean or 1.0))
    return result
