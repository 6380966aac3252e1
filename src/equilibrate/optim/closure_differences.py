"""Products H v by differences of the gradients that a closure computes around one point."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from equilibrate.curvature.differences import relative_step
from equilibrate.distributed import local, norm
from equilibrate.optim.arguments import check_layouts
from equilibrate.optim.clipping import CLIPS, Lengths, meet, rounding
from equilibrate.optim.closure_checks import length, refuse_accumulation
from equilibrate.optim.restoring import (
    Point,
    RandomState,
    copied_gradients,
    gradients_of,
    set_random_state,
    set_values,
)

Closure = Callable[[], float]
Gradients = Sequence[Tensor | None]

_FARTHEST = 0.1  # at which a loss may still be asked for, to see whether it is clipped


class Differences:
    """Gradients of a closure at displaced points, and what they make; used inside `put_back`.

    `start` is the random state that the run at the present point began with, `earlier` the
    gradients from before that run. Steps are in units of the parameters' size. `length` is that of
    the last gradient ahead; given beforehand, it is of an earlier measurement.
    """

    length: float | None = None

    def __init__(
        self,
        closure: Closure,
        parameters: Sequence[Tensor],
        point: Point,
        *,
        start: RandomState,
        earlier: Sequence[Tensor | None],
    ) -> None:
        """Take the present point."""
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
        self._looked_farther = False
        self.present = [True] * len(parameters)

    def _product(
        self, vectors: Sequence[Tensor], relative: float
    ) -> tuple[list[Tensor], Lengths | None]:
        """Return H v, and the lengths it was measured by where the two displaced ones meet."""
        eps = relative * self._size
        ahead, behind = self._around(vectors, eps)
        if any(g is not None for g in self._earlier):
            refuse_accumulation(self._point.gradients, ahead, behind, self._earlier)
        around = length(ahead), length(behind)
        before, self.length = self.length, around[0]
        products = self._divided(ahead, behind, 2 * eps)
        if not meet(*around, self._rounding):
            return products, None
        here, apart = length(self._point.gradients), 2 * eps * norm(products)
        return products, Lengths(here, *around, apart, before=before)

    def _look_for_clipping(
        self, vectors: Sequence[Tensor], lengths: Lengths, relative: float
    ) -> None:
        """Refuse gradients of one length; where they are too near to tell, look farther.

        Farther once in a measurement, and later on only where the length is that of the one before
        as well, as it would be if it were clipped: each time takes up to four runs.
        """
        farthest = max(_FARTHEST, 2 * self._own)
        if lengths.equal(self._rounding):
            self._refuse_clipping(vectors, relative)
        elif not self._looked_farther and lengths.as_before(self._rounding):
            self._looked_farther = True
            if farther := lengths.wider(self._rounding, relative, farthest):
                self._refuse_clipping(vectors, farther / 2)

    def _refuse_clipping(self, vectors: Sequence[Tensor], relative: float) -> None:
        """Raise where lengths are equal at two and at four times this step too, not by chance."""
        for factor in (2, 4):
            _, lengths = self._product(vectors, factor * relative)
            if lengths is None or not lengths.equal(self._rounding):
                return
        raise RuntimeError(CLIPS)

    def _disagreement(self, vectors: Sequence[Tensor], relative: float) -> float:
        """Return how far the product changes, relatively, when the step is doubled."""
        (one, _), twice = self._product(vectors, relative), 2 * relative * self._size
        two = self._divided(*self._around(vectors, twice), 2 * twice)
        torch._foreach_sub_(*([local(h) for h in products] for products in (one, two)))
        change, size = norm(one), norm(two)
        return change / size if size else math.inf if change else 0.0

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


def _size(parameters: Sequence[Tensor]) -> float:
    """Return curvature.differences.parameter_size, over all shards."""
    size, count = norm(parameters), sum(p.numel() for p in parameters)
    return float(size / count**0.5) if size > 0 else 1.0
