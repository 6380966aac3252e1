"""A first measurement on the first of several micro-batches, and what the others make of it.

The warm-up folds its vectors at once, each a product with H_1, the Hessian of the first loss. The
step's Hessian is the sum over all its losses, of which one product is taken, with the last of these
vectors; tensor by tensor

    D <- D |sum_i H_i v| / |H_1 v|,    at least sqrt(n) for n losses:

n where the micro-batches are alike, sqrt(n) where all that they curve is noise. Where it is more
than n, the last vector may have met little of the first loss, and |D| stands for |H_1 v|.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from equilibrate.curvature.graph import reached
from equilibrate.diagonals import equilibration
from equilibrate.distributed import norm
from equilibrate.optim.provisional import Provisional

_ROUNDED = 1.001  # what is n but for rounding


@dataclass
class Beside:
    """The last product of a warm-up, and the same vector's of all losses of the step so far."""

    index: int  # of the vector
    first: dict[Tensor, Tensor]  # the mean over the ranks
    total: dict[Tensor, Tensor]  # this rank's own

    def add(self, products: Mapping[Tensor, Tensor]) -> None:
        """Add the product of another loss."""
        for parameter, product in products.items():
            found = self.total.get(parameter)
            self.total[parameter] = product if found is None else found + product


class SeveralLosses(Provisional):
    """An optimizer whose first step may have several losses."""

    _besides: list[Beside]  # one for each length of a warm-up

    def _forget_volatile(self) -> None:
        super()._forget_volatile()
        self._besides = []

    def _give_up(self) -> None:
        super()._give_up()
        self._besides = []

    @contextmanager
    def _provisionally(self, fresh: Collection[Tensor]) -> Iterator[None]:
        besides = list(self._besides)
        try:
            with super()._provisionally(fresh):
                yield
        except BaseException:
            self._besides = besides
            raise

    def _remember(
        self,
        index: int,
        ending: Iterable[Tensor],
        own: Mapping[Tensor, Tensor],
        mean: Mapping[Tensor, Tensor],
    ) -> None:
        """Keep the last product of what has been warmed up, where products are squared."""
        last = [p for p in ending if p in mean]
        if last and self._kind is equilibration:
            known = {p: own[p] for p in last if p in own}
            self._besides.append(Beside(index, {p: mean[p] for p in last}, known))

    def _wanted_beside(self) -> list[tuple[Beside, list[Tensor]]]:
        """Return the vectors that a further loss of this step is multiplied with, and for what."""
        wanted = [(each, [p for p in each.first if p.requires_grad]) for each in self._besides]
        return [(each, asked) for each, asked in wanted if asked]

    def _count_loss(self, loss: Tensor) -> None:
        """Count a loss that was not refused: it is one of this step's."""
        for parameter in reached(loss, self._warmed) if self._warmed else ():
            self._reached[parameter] = self._reached.get(parameter, 0) + 1
        self._note_gradients()

    def _complete_warm_up(self) -> None:
        """Make a warm-up on the first of several micro-batches stand for all of them."""
        counts = self._numbers_of_losses() if self._warmed else {}
        self._warmed, self._reached, self._before = [], {}, None
        several = {p: n for p, n in counts.items() if n > 1 and self._measured(p)}
        besides, self._besides = self._besides, []
        factors = dict(several)
        for beside in besides:
            factors |= self._times_of(beside, several)
        for parameter, factor in factors.items():
            self.state[parameter]["diagonal"].mul_(factor)
            self.state[parameter]["scale"] *= factor
        if several:
            self._renew_mean()

    def _times_of(self, beside: Beside, several: Mapping[Tensor, float]) -> dict[Tensor, float]:
        """Return how many times larger the diagonals are for n losses; none of an overflow."""
        known = [p for p in several if p in beside.first]
        total = self._mean({p: beside.total[p] for p in known if p in beside.total}, known)
        sizes = {p: (norm([beside.first[p]]), norm([total[p]])) for p in known}
        if not all(math.isfinite(size) for pair in sizes.values() for size in pair):
            return {}
        return {p: self._times(p, several[p], *sizes[p]) for p in known}

    def _times(self, parameter: Tensor, losses: float, first: float, total: float) -> float:
        ratio = total / first if first else losses
        if ratio > losses * _ROUNDED:
            return max(losses, total / norm([self.state[parameter]["diagonal"]]))
        return max(math.sqrt(losses), min(losses, ratio))

    def _numbers_of_losses(self) -> dict[Tensor, float]:
        """Return n for all that was warmed up: the mean over the ranks with a loss that reaches it.

        The others have added zero to the warm-up, as they do to the step.
        """
        counts = [float(self._reached.get(parameter, 0)) for parameter in self._warmed]
        ranks = self._ranks()
        if ranks is not None:
            both = ranks.mean_numbers([*counts, *(float(n > 0) for n in counts)])
            halves = both[: len(counts)], both[len(counts) :]
            counts = [n / share if share else n for n, share in zip(*halves, strict=True)]
        return dict(zip(self._warmed, counts, strict=True))
