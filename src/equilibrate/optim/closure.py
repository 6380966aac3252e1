"""Measuring through torch's standard closure: gradients at theta + e v and theta - e v.

The closure is the user's own (zero_grad, forward, backward, return loss) and is not changed. It is
run at the present point first; that run is the training step's. On a probing step it is run again
at the two displaced points, from the same random state, so that dropout draws the same masks; then
parameters, gradients and random state are put back from copies. What is not torch's (NumPy's
generator, a data loader advanced inside the closure) cannot be put back: draw the batch outside
the closure.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from equilibrate.curvature.differences import relative_step
from equilibrate.distributed import local, norm
from equilibrate.optim.arguments import check_layouts
from equilibrate.optim.clipping import CLIPS, Lengths, meet, rounding
from equilibrate.optim.closure_checks import length, refuse_accumulation, require_repeatable
from equilibrate.optim.restoring import (
    Point,
    RandomState,
    copied_gradients,
    gradients_of,
    set_random_state,
    set_values,
)
from equilibrate.optim.state import all_finite
from equilibrate.optim.warn import warn_user

Closure = Callable[[], float]
Gradients = Sequence[Tensor | None]

# How far the products at e and 2 e may differ, relative to the latter. For smooth networks that
# difference is about the error at e. A float32 parameter may be computed with in bfloat16
# (autocast), which cannot be seen from here and makes a float32 step mostly noise; a coarser step
# then agrees better and is taken. Independent noise differs by 2.2. Where the gradient turns faster
# than the parameters' size tells (sine layers), or a step of ReLU crosses kinks, these steps do not
# agree, and a finer one may.
_AGREEMENT = 0.2
_NOISE = 1.5
_COARSER = (torch.float16, torch.bfloat16)
_FINER = (1e-1, 1e-2)
_FARTHEST = 0.1  # at which a loss may still be asked for, to see whether it is clipped

_NOT_FINITE = (
    "The gradient is not finite, so no finite curvature can be measured around this point. Check "
    "that the loss is finite at the first batch."
)
_ONLY_NOISE = (
    "Differences of gradients do not measure the curvature of this closure: at every step size "
    "they are mostly rounding noise. Compute in a higher precision, or call optimizer.probe(loss) "
    "on the live loss instead."
)
_DEPENDS = (
    "The curvature measured by differences of gradients depends on the step size (by {:.0%} when "
    "it is doubled). Piecewise linear activations such as ReLU do that: the kinks crossed by the "
    "step count as curvature. So do gradients that turn within the finest step tried. Where second "
    "derivatives can be had, call optimizer.probe(loss); else set param_group['difference_step'] "
    "to a step that you trust, in units of the parameters' size."
)
_FINER_STEP = (
    "Differences of gradients at the usual step do not measure one curvature (it changes by {:.0%} "
    "when the step is doubled), at a finer one, {:.1e} of the parameters' size, they do: that one "
    "is used. It is right where gradients turn fast (sine layers). With kinks, such as those of "
    "ReLU, it may be off: compare by equilibrate.monitor.compare_probes, or call "
    "optimizer.probe(loss)."
)


class ClosureHessian:
    """The Hessian of what a closure computes, by central differences; used inside `put_back`.

    `start` is the random state that the run at the present point began with, `earlier` the
    gradients from before that run.
    """

    averaged = True  # over ranks: the gradients that differ here were averaged by the backward

    def __init__(
        self,
        closure: Closure,
        parameters: Sequence[Tensor],
        point: Point,
        *,
        start: RandomState,
        earlier: Sequence[Tensor | None],
        relative: float | None,
    ) -> None:
        """Take the present point; `relative` is the step in units of the parameters, if known."""
        check_layouts([g for g in point.gradients if g is not None])
        self._closure = closure
        self._parameters = parameters
        self._point = point
        self._start = start
        self._earlier = earlier
        self._size = _size(parameters)
        self._own = max(relative_step(p.dtype) for p in parameters)
        there = [g for g in point.gradients if g is not None]
        self._rounding = rounding({g.dtype for g in there}, sum(g.numel() for g in there))
        self.relative = relative
        self.present = [True] * len(parameters)

    def __call__(self, vectors: Sequence[Tensor], wanted: Sequence[int]) -> list[Tensor]:
        """Return H v at the wanted positions; the first call also chooses and checks the step."""
        first = self.relative is None
        if self.relative is None:
            self.relative = self._choose(vectors)
        products, lengths = self._product(vectors, self.relative)
        if lengths is not None:
            self._look_for_clipping(vectors, lengths, self.relative, first)
        return [products[i] for i in wanted]

    def _product(
        self, vectors: Sequence[Tensor], relative: float
    ) -> tuple[list[Tensor], Lengths | None]:
        """Return H v, and the lengths it was measured by where the two displaced ones meet."""
        eps = relative * self._size
        ahead, behind = self._around(vectors, eps)
        if any(g is not None for g in self._earlier):
            refuse_accumulation(self._point.gradients, ahead, behind, self._earlier)
        around = length(ahead), length(behind)
        products = self._divided(ahead, behind, 2 * eps)
        if not meet(*around, self._rounding):
            return products, None
        here, apart = length(self._point.gradients), 2 * eps * norm(products)
        return products, Lengths(here, *around, apart)

    def _look_for_clipping(
        self, vectors: Sequence[Tensor], lengths: Lengths, relative: float, first: bool
    ) -> None:
        """Refuse gradients of one length; where the first are too near to tell, look farther."""
        if lengths.equal(self._rounding):
            self._refuse_clipping(vectors, relative)
        elif first and (
            farther := lengths.wider(self._rounding, relative, max(_FARTHEST, 2 * self._own))
        ):
            self._refuse_clipping(vectors, farther / 2)

    def _refuse_clipping(self, vectors: Sequence[Tensor], relative: float) -> None:
        """Raise where lengths are equal at two and at four times this step too, not by chance."""
        for factor in (2, 4):
            _, lengths = self._product(vectors, factor * relative)
            if lengths is None or not lengths.equal(self._rounding):
                return
        raise RuntimeError(CLIPS)

    def _around(self, vectors: Sequence[Tensor], eps: float) -> tuple[Gradients, Gradients]:
        """Return the gradients at theta + eps v, and at theta - eps v until the next run."""
        self._run_at(vectors, eps)
        ahead = copied_gradients(self._parameters)
        self._run_at(vectors, -eps)
        self.present = [a is not None for a in ahead]
        return ahead, gradients_of(self._parameters)

    def _divided(self, ahead: Gradients, behind: Gradients, by: float) -> list[Tensor]:
        """Return (ahead - behind) / by, which is written over what was ahead."""
        pairs = [(a, b) for a, b in zip(ahead, behind, strict=True) if not (a is None or b is None)]
        if pairs:
            first, second = ([local(tensor) for tensor in own] for own in zip(*pairs, strict=True))
            torch._foreach_sub_(first, second)
            torch._foreach_div_(first, by)
        each = zip(ahead, behind, self._parameters, strict=True)
        return [torch.zeros_like(p) if a is None or b is None else a for a, b, p in each]

    def _run_at(self, vectors: Sequence[Tensor], eps: float) -> None:
        """Run the closure at theta + eps v, from the same random state and without gradients."""
        with torch.no_grad():
            own = set_values(self._parameters, self._point.values)
            torch._foreach_add_(own, [local(vector) for vector in vectors], alpha=eps)
        for parameter in self._parameters:
            parameter.grad = None
        set_random_state(self._start)
        with torch.enable_grad():
            self._closure()

    def _choose(self, vectors: Sequence[Tensor]) -> float:
        """Return the first step at which the products at e and 2 e agree, else the best."""
        if not all_finite([g for g in self._point.gradients if g is not None]):
            raise RuntimeError(_NOT_FINITE)
        own = self._own
        found: dict[float, float] = {}
        for relative in [own, *(step for step in map(relative_step, _COARSER) if step > own)]:
            change = self._disagreement(vectors, relative)
            found[relative] = math.inf if math.isnan(change) else change
            if len(found) == 1:
                self._run_at(vectors, 0.0)
                require_repeatable(self._point.gradients, gradients_of(self._parameters))
            if change <= _AGREEMENT:
                return relative
        best = min(found, key=lambda step: found[step])
        finer = self._finer(vectors, own)
        if found[best] >= _NOISE and finer is None:
            raise RuntimeError(_ONLY_NOISE)
        if found[best] < _NOISE:
            warn_user((_DEPENDS if finer is None else _FINER_STEP).format(found[best], finer))
        return best if finer is None else finer

    def _finer(self, vectors: Sequence[Tensor], own: float) -> float | None:
        """Return a step below the dtype's own at which the products agree, if there is one."""
        for relative in (own * factor for factor in _FINER):
            # Products that vanish have nothing to differ by: no parameter moved.
            if 0 < self._disagreement(vectors, relative) <= _AGREEMENT:
                return relative
        return None

    def _disagreement(self, vectors: Sequence[Tensor], relative: float) -> float:
        """Return how far the product changes, relatively, when the step is doubled."""
        (one, _), twice = self._product(vectors, relative), 2 * relative * self._size
        two = self._divided(*self._around(vectors, twice), 2 * twice)
        torch._foreach_sub_(*([local(h) for h in products] for products in (one, two)))
        change, size = norm(one), norm(two)
        return change / size if size else math.inf if change else 0.0


def _size(parameters: Sequence[Tensor]) -> float:
    """Return curvature.differences.parameter_size, over all shards."""
    size, count = norm(parameters), sum(p.numel() for p in parameters)
    return float(size / count**0.5) if size > 0 else 1.0
