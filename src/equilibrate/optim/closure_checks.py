"""What a closure must keep to, so that differences of its gradients measure its curvature.

It repeats itself, and it does not add to gradients that were there before; that it does not clip
at displaced points is checked in `clipping.py`. Each check takes the gradients at the point, ahead
and behind, None where there is none. A closure may clip at the point itself: its gradient there is
then shorter than elsewhere.
"""

from collections.abc import Sequence

from torch import Tensor

from equilibrate.distributed import inner, norm

Gradients = Sequence[Tensor | None]

_REPEATS = 1e-2  # kernels that add in any order repeat to 1e-6 or so, another batch not at all
_SHORTEST, _LOOKED_AT = 32, 3  # elements of a tensor that may speak for all, and how many may
_EXPLAINED = 0.5  # an earlier gradient explains the excess to e^2, or not at all

NOT_REPEATABLE = (
    "The closure does not repeat itself: run twice at the same point it gave two gradients, so "
    "their differences measure nothing. Draw the batch outside the closure, and leave random "
    "numbers that are not torch's out of it; or call optimizer.probe(loss) on the live loss."
)
_ACCUMULATES = (
    "The closure adds its gradient to one that was there before, so differences would see its "
    "own batch alone. To accumulate over micro-batches, call optimizer.probe(loss) on each of "
    "them before its backward, then optimizer.step() without a closure; or call zero_grad() "
    "inside the closure."
)


def length(gradients: Gradients) -> float:
    """Return the norm of the gradients that are there."""
    return norm([g for g in gradients if g is not None])


def repeats(first: Gradients, second: Gradients) -> bool:
    """Tell whether two runs at the same point gave the same gradient."""
    there = [g for g in first if g is not None]
    pairs = [(g, a) for g, a in zip(first, second, strict=True) if g is not None]
    return norm([g if a is None else g - a for g, a in pairs]) <= _REPEATS * norm(there)


def refuse_accumulation(
    point: Gradients, ahead: Gradients, behind: Gradients, earlier: Gradients
) -> None:
    """Raise where the gradient at the point is the displaced ones' mean plus the earlier one."""
    if _shown_by_one(point, ahead, behind, earlier):
        return
    excess, before = [], []
    for g, a, b, e in zip(point, ahead, behind, earlier, strict=True):
        if g is not None and a is not None and b is not None:
            excess.append((a + b).mul_(-0.5).add_(g))
            before.append(e)
    size = norm(excess)
    # An earlier gradient that is so much longer leaves more than it explains.
    if length(before) >= (1 + _EXPLAINED) * size:
        return
    unexplained = norm([x if e is None else x - e for x, e in zip(excess, before, strict=True)])
    if not unexplained < _EXPLAINED * size:
        return
    mean = [None if a is None or b is None else (a + b) / 2 for a, b in _pairs(ahead, behind)]
    if not _is_shorter(point, mean):
        raise RuntimeError(_ACCUMULATES)


def _shown_by_one(
    point: Gradients, ahead: Gradients, behind: Gradients, earlier: Gradients
) -> bool:
    """Tell whether one short tensor shows already that nothing was added: the usual case.

    Its earlier gradient is then much longer than the excess, and no rounding of the gradient.
    """
    there = [
        (g, a, b, e)
        for g, a, b, e in zip(point, ahead, behind, earlier, strict=True)
        if not (g is None or a is None or b is None or e is None) and g.numel() >= _SHORTEST
    ]
    for g, a, b, e in sorted(there, key=lambda own: own[0].numel())[:_LOOKED_AT]:
        before, excess = norm([e]), norm([(a + b).mul_(-0.5).add_(g)])
        if before > 0 and before >= max(_EXPLAINED * norm([g]), (1 + _EXPLAINED) * excess):
            return True
    return False


def _is_shorter(gradient: Gradients, whole: Gradients) -> bool:
    """Tell whether a gradient is another one times a factor between zero and one."""
    pairs = [(g, w) for g, w in _pairs(gradient, whole) if g is not None and w is not None]
    gradients, wholes = [g for g, _ in pairs], [w for _, w in pairs]
    size = inner(wholes, wholes)
    factor = inner(gradients, wholes) / size if size else 0.0
    rest = norm([g - factor * w for g, w in pairs])
    return 0 < factor < 1 and rest <= _REPEATS * norm(gradients)


def _pairs(first: Gradients, second: Gradients) -> list[tuple[Tensor | None, Tensor | None]]:
    return list(zip(first, second, strict=True))
