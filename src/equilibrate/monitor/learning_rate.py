"""A learning rate for ESGD from curvature alone: a third of an estimated edge of stability.

On the quadratic model of the loss a step theta <- theta - lr D^-1 g multiplies the error along an
eigenvector of D^-1 H by 1 - lr lambda, so that it grows where lr lambda > 2: that is the edge.
Momentum moves it (`stability_limit`). The radius takes |lambda|: at the start of training negative
curvature is often as large as positive, and turns positive later. D is as large as the rows of H,
so that the radius, at most sqrt(N), says how many coordinates pull together: this is what a
learning rate without a unit means.

The model is that of one batch at one point, and training moves to where curvature is larger: at
the edge itself most small networks diverge, at a third of it few do. Where a run is long and its
network large, more was better. Take the number as the start of a search; how far off it was is
measured in docs/momentum.md.
"""

import math
from functools import partial
from numbers import Integral
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from equilibrate.diagonals import estimate_equilibration
from equilibrate.monitor.lanczos import lanczos
from equilibrate.monitor.suggested_rate import SuggestedRate, rate_and_edge
from equilibrate.monitor.trouble import LOOK_AT_THE_BATCH, advised, diverged
from equilibrate.optim import ESGD
from equilibrate.optim.live_loss import LiveLoss
from equilibrate.rules.reference import denominator

_CALL = "suggest_learning_rate(loss, model.parameters())"

# After fewer the largest Ritz value may still be far below the largest curvature, and the rate
# beyond the edge itself (`tests/monitor/test_learning_rate.py` holds what five come to).
FEWEST_STEPS = 5
_TOO_FEW_STEPS = (
    "with fewer, Lanczos' recursion misses the largest curvature, and the rate would be too large."
)


def suggest_learning_rate(
    loss: Tensor,
    parameters: ParamsT,
    *,
    damping: float = 1e-2,
    damping_kind: str = "relative",
    momentum: float = 0.0,
    nesterov: bool = False,
    probes: int = 20,
    steps: int = 12,
    seed: int = 0,
) -> SuggestedRate:
    """Return a third of the estimated edge, by `probes` products for D and `steps` for lambda.

        edge = 2 / max |lambda(D^-1 H)|                         without momentum
               2 (1 + m) / max |lambda(D^-1 H)|                 with heavy-ball momentum m
               (2 + 2 m) / (1 + 2 m) / max |lambda(D^-1 H)|     with Nesterov's

    `lr` is a third of it, and with heavy-ball momentum a third of Nesterov's edge, 1 / (3 + 6 m) of
    its own. Both are estimates, of one batch at one point: on four problems without momentum the
    edge was 0.48 to 2.04 times the best rate of a search, and `lr` 0.16 to 0.68 of that rate.

    The third was chosen on small networks: four of them, tanh and ReLU, ten seeds each, 300 or 600
    updates without momentum, with Nesterov's and with heavy-ball momentum of 0.9. At this `lr` 1 of
    120 runs fails, at 1.5 times it 4, at three times it 40; at a third of heavy-ball momentum's own
    edge 10 of 40; on ten other seeds 1 of 120 at this `lr`
    (`python -m benchmarks.share_of_the_edge`). ReLU networks, all that fail at it. docs/momentum.md
    has the table, and what larger networks liked.

    Give the optimizer `found.lr`. With momentum search downwards from it first: other networks have
    failed near it.

    Call it before training, on the loss of one batch; nothing is changed, the loss can still be
    probed and backpropagated. Lanczos' value is never above the true radius and after a dozen steps
    a few percent below it (`monitor.spectrum` gives an interval).

    Args:
        loss: a live scalar loss.
        parameters: those that ESGD will train, in any way it takes them; of groups the parameters
            alone are read, and the settings below hold for all.
        damping: ESGD's.
        damping_kind: ESGD's: "relative" to each tensor's mean diagonal, "initial", to the mean over
            all of them here, or "absolute". With an absolute damping far above D, edge / damping is
            that of plain gradient descent.
        momentum: ESGD's.
        nesterov: ESGD's.
        probes: random vectors for D, as many as ESGD's warm-up takes.
        steps: of Lanczos' recursion, five at least: with fewer it misses the largest curvature.
        seed: of all random vectors.

    Example:
        >>> import torch
        >>> w = torch.ones(3, requires_grad=True)
        >>> loss = (torch.tensor([1.0, 10.0, 100.0]) * w**2).sum() / 2
        >>> found = suggest_learning_rate(loss, [w], damping=0.0)
        >>> round(found.edge, 4), round(found.lr, 4)  # D is H itself: beyond 2 it diverges
        (2.0, 0.6667)
    """
    _check_whole("probes", probes, 2, "one vector alone tells nothing of its error.")
    _check_whole("steps", steps, FEWEST_STEPS, _TOO_FEW_STEPS)
    _check_call(loss, parameters)
    own = _trained(
        parameters, damping=damping, damping_kind=damping_kind, momentum=momentum, seed=seed
    )
    with advised(_CALL):
        nodes = _nodes(loss, own, damping, damping_kind, probes, steps, seed)
    smallest, largest = float(nodes.min()), float(nodes.max())
    lr, edge = rate_and_edge(smallest, largest, momentum, nesterov)
    return SuggestedRate(lr, edge, smallest, largest, probes + steps, momentum)


def _nodes(
    loss: Tensor,
    own: list[Tensor],
    damping: float,
    damping_kind: str,
    probes: int,
    steps: int,
    seed: int,
) -> Tensor:
    """Return Lanczos' nodes of D^-1 H."""
    hessian = partial(LiveLoss(loss, own), wanted=range(len(own)))
    if not math.isfinite(float(loss.detach())):
        raise ValueError(diverged(float(loss.detach()), LOOK_AT_THE_BATCH))
    found = estimate_equilibration(
        hessian, own, probes=probes, distribution="rademacher", seed=seed
    )
    if not all(bool(d.isfinite().all()) for d in found.value):
        raise ValueError(
            "The curvature is not finite at this batch, so that it suggests no learning rate. "
            "Check that the loss is twice differentiable here."
        )
    diagonal = _denominators(found.value, damping, damping_kind)
    return lanczos(hessian, own, steps=steps, diagonal=diagonal, seed=seed).nodes


def _check_call(loss: Any, parameters: Any) -> None:
    """Raise for what is easily handed over instead of the loss or of the parameters."""
    if isinstance(loss, (nn.Module, Optimizer)):
        raise TypeError(f"The loss comes first, got {type(loss).__name__}. Call {_CALL}.")
    if isinstance(parameters, (nn.Module, Optimizer, Tensor)):
        raise TypeError(
            f"The parameters must be an iterable of tensors, got {type(parameters).__name__}. "
            f"Call {_CALL}."
        )


def _check_whole(name: str, value: int, least: int, reason: str) -> None:
    if not isinstance(value, Integral) or value < least:
        raise ValueError(
            f"Invalid {name}: {value!r}. It must be a whole number >= {least}: {reason}"
        )


def _trained(parameters: ParamsT, **settings: Any) -> list[Tensor]:
    """Return what an ESGD of these would train; it raises for what it would not take."""
    given: list[Any] = list(parameters)
    groups = ESGD(given, **settings).param_groups if given else []
    return [p for group in groups for p in group["params"] if p.requires_grad]


def _denominators(diagonals: list[Tensor], damping: float, damping_kind: str) -> list[Tensor]:
    """Return D plus damping; but for absolute damping, a tensor's mean stands where D is zero."""
    if damping_kind == "absolute":
        # Where both are zero the row of H is, and any number does.
        return [denominator(d, damping, 0.0 if damping else 1.0) for d in diagonals]
    seen = sum(int((d > 0).sum()) for d in diagonals)
    everywhere = sum(float(d.sum()) for d in diagonals) / max(1, seen)
    result = []
    for diagonal in diagonals:
        count = int((diagonal > 0).sum())
        mean = float(diagonal.sum()) / count if count else everywhere
        # A loss without any curvature leaves ones: every eigenvalue is zero.
        share = everywhere if damping_kind == "initial" else mean
        result.append(denominator(diagonal, damping * share, mean or 1.0))
    return result
