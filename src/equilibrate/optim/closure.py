"""Measuring through torch's standard closure: gradients at theta + e v and theta - e v.

The closure is the user's own (zero_grad, forward, backward, return loss) and is not changed. It is
run at the present point first; that run is the training step's. On a probing step it is run again
at the two displaced points, from the same random state, so that dropout draws the same masks; then
parameters, gradients and random state are put back from copies. What is not torch's (NumPy's
generator, a data loader advanced inside the closure) cannot be put back: draw the batch outside
the closure.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.curvature.differences import relative_step
from equilibrate.distributed import local
from equilibrate.optim.closure_checks import NOT_REPEATABLE, repeats
from equilibrate.optim.closure_differences import Differences
from equilibrate.optim.restoring import copied_gradients, gradients_of
from equilibrate.optim.state import all_finite
from equilibrate.optim.warn import warn_user

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
_KINKS = (
    "This loss has kinks ({}), and differences of gradients count those that a step crosses as "
    "curvature: the result depends on the step size (here by {:.0%} when it is doubled). Call "
    "optimizer.probe(loss), which measures second derivatives; or compare the two by "
    "equilibrate.monitor.compare_probes."
)
_FINER_STEP = (
    "Differences of gradients at the usual step do not measure one curvature (it changes by {:.0%} "
    "when the step is doubled), at a finer one, {:.1e} of the parameters' size, they do: that one "
    "is used. It is right where gradients turn fast (sine layers). With kinks, such as those of "
    "ReLU, it may be off: compare by equilibrate.monitor.compare_probes, or call "
    "optimizer.probe(loss)."
)


class ClosureHessian(Differences):
    """The Hessian of what a closure computes, by central differences; used inside `put_back`.

    `relative` is the step in units of the parameters' size, chosen at the first product where it is
    None; `kinks` names what in the loss has no second derivative everywhere, where that is known.
    """

    averaged = True  # over ranks: the gradients that differ here were averaged by the backward
    relative: float | None = None
    kinks: Sequence[str] = ()

    def __call__(self, vectors: Sequence[Tensor], wanted: Sequence[int]) -> list[Tensor]:
        """Return H v at the wanted positions; the first call also chooses and checks the step."""
        if self.relative is None:
            self.relative = self._choose(vectors)
        products, lengths = self._product(vectors, self.relative)
        if lengths is not None:
            self._look_for_clipping(vectors, lengths, self.relative)
        return [products[i] for i in wanted]

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
                self._require_repeatable(vectors)
            if change <= _AGREEMENT:
                self._tell_of_kinks(change)
                return relative
        best = min(found, key=lambda step: found[step])
        # What crosses kinks grows as steps get finer, and is seen more and more rarely.
        finer = None if self.kinks else self._finer(vectors, own)
        if found[best] >= _NOISE and finer is None:
            raise RuntimeError(_ONLY_NOISE)
        self._tell_of_kinks(found[best])
        if found[best] < _NOISE and not self.kinks:
            warn_user((_DEPENDS if finer is None else _FINER_STEP).format(found[best], finer))
        return best if finer is None else finer

    def _tell_of_kinks(self, change: float) -> None:
        if self.kinks:
            warn_user(_KINKS.format(", ".join(self.kinks), change))

    def _require_repeatable(self, vectors: Sequence[Tensor]) -> None:
        """Raise where the closure, run again at the point, gives another gradient.

        At the point it may do what it does not do elsewhere (`if not optimizer.measuring`); so
        where the two differ, it is run there once more.
        """
        self._run_at(vectors, 0.0)
        if not repeats(self._point.gradients, gradients_of(self._parameters)):
            once = copied_gradients(self._parameters)
            self._run_at(vectors, 0.0)
            if not repeats(once, gradients_of(self._parameters)):
                raise RuntimeError(NOT_REPEATABLE)

    def _finer(self, vectors: Sequence[Tensor], own: float) -> float | None:
        """Return a step below the dtype's own at which the products agree, if there is one.

        For another vector too: with kinks that are rarely crossed, one of them may see none.
        """
        others = [_shifted(vector) for vector in vectors]
        for relative in (own * factor for factor in _FINER):
            # Products that vanish have nothing to differ by: no parameter moved.
            if all(0 < self._disagreement(v, relative) <= _AGREEMENT for v in (vectors, others)):
                return relative
        return None


def _shifted(vector: Tensor) -> Tensor:
    """Return a vector of the same elements in other places."""
    own = local(vector)
    moved: Tensor = torch.empty_like(vector)
    local(moved).copy_(own.flatten().roll(1).view_as(own))
    return moved
