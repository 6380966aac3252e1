"""What a closure must keep to, so that differences of its gradients measure its curvature.

It repeats itself, it does not add to gradients that were there before, and it does not clip at
displaced points. Each check takes the gradients at the point, ahead and behind, None where there is
none. A closure may clip at the point itself: its gradient there is then shorter than elsewhere.
"""

from collections.abc import Sequence

from torch import Tensor

from equilibrate.distributed import inner

Gradients = Sequence[Tensor | None]

_REPEATS = 1e-2  # kernels that add in any order repeat to 1e-6 or so, another batch not at all
_EXPLAINED = 0.5  # an earlier gradient explains the excess to e^2, or not at all
_SAME_LENGTH = 1e-4  # of the difference: the cosine of g and H v, far larger unless g is clipped

_NOT_REPEATABLE = (
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
_CLIPS = (
    "The closure clips its gradients by their norm, so their differences measure the curvature of "
    "something else. Clip inside it only `if not optimizer.measuring` (in Lightning, in "
    "configure_gradient_clipping), or call optimizer.probe(loss) on the live loss."
)


def norm(tensors: Sequence[Tensor]) -> float:
    """Return the Euclidean norm over a list of tensors; not a number where any element is not."""
    return float(inner(tensors, tensors) ** 0.5)


def require_repeatable(point: Gradients, again: Gradients) -> None:
    """Raise where the closure gives another gradient at the same point, and not a clipped one."""
    there = [g for g in point if g is not None]
    pairs = [(g, a) for g, a in zip(point, again, strict=True) if g is not None]
    change = norm([g if a is None else g - a for g, a in pairs])
    if not change <= _REPEATS * norm(there) and not _is_shorter(point, again):
        raise RuntimeError(_NOT_REPEATABLE)


def refuse_accumulation(
    point: Gradients, ahead: Gradients, behind: Gradients, earlier: Gradients
) -> None:
    """Raise where the gradient at the point is the displaced ones' mean plus the earlier one."""
    mean = [None if a is None or b is None else (a + b) / 2 for a, b in _pairs(ahead, behind)]
    excess, unexplained = [], []
    for g, m, e in zip(point, mean, earlier, strict=True):
        if g is not None and m is not None:
            excess.append(g - m)
            unexplained.append(g - m if e is None else g - m - e)
    if norm(unexplained) < _EXPLAINED * norm(excess) and not _is_shorter(point, mean):
        raise RuntimeError(_ACCUMULATES)


def refuse_clipping(point: Gradients, ahead: Gradients, behind: Gradients) -> None:
    """Raise where the three gradients differ but have one length, as clipped ones do.

    |g + e Hv| - |g - e Hv| is 2 e |Hv| cos(g, Hv), and |g| lies below their mean by a term in e^2.
    """
    here, front, back = (norm([t for t in g if t is not None]) for g in (point, ahead, behind))
    pairs = [(a, b) for a, b in _pairs(ahead, behind) if a is not None and b is not None]
    apart = _SAME_LENGTH * norm([a - b for a, b in pairs])
    if abs(front - back) < apart and abs(here - (front + back) / 2) < apart:
        raise RuntimeError(_CLIPS)


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
