"""A first measurement on the first of several micro-batches, and what the others make of it.

The warm-up folds its vectors at once, each a product with H_1, the Hessian of the first loss. The
step's Hessian is the sum over all its losses, of which one product is taken, with the last of these
vectors; tensor by tensor

    D <- D |sum_i H_i v| / |H_1 v|,    kept between sqrt(n) and n for n losses:

n where the micro-batches are alike, sqrt(n) where all that they curve is noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from equilibrate.curvature.graph import reached
from equilibrate.diagonals import equilibration
from equilibrate.distributed import norm
from equilibrate.optim.provisional import Provisional


@dataclass
class Beside:
    """One product of the first loss, and the same vector's of all losses so far."""

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

    _beside: Beside | None

    def _forget_volatile(self) -> None:
        super()._forget_volatile()
        self._beside = None

    def _give_up(self) -> None:
        super()._give_up()
        self._beside = None

    def _remember(
        self, index: int, own: Mapping[Tensor, Tensor], mean: Mapping[Tensor, Tensor]
    ) -> None:
        """Keep a warm-up's last product, where products are squared (Jacobi's are added)."""
        if self._kind is equilibration:
            self._beside = Beside(index, dict(mean), dict(own))

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
        beside, self._beside = self._beside, None
        for parameter, factor in self._factors_by_losses(several, beside).items():
            self.state[parameter]["diagonal"].mul_(factor)
            self.state[parameter]["scale"] *= factor
        if several:
            self._renew_mean()

    def _factors_by_losses(
        self, several: Mapping[Tensor, float], beside: Beside | None
    ) -> dict[Tensor, float]:
        """Return how many times larger each diagonal is for n losses than for the first."""
        factors = dict(several)
        known = [p for p in several if beside is not None and p in beside.first]
        if beside is None or not known:
            return factors
        total = self._mean({p: beside.total[p] for p in known if p in beside.total}, known)
        for parameter in known:
            size, n = norm([beside.first[parameter]]), several[parameter]
            ratio = norm([total[parameter]]) / size if size else n
            factors[parameter] = min(n, max(n**0.5, ratio))
        return factors

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
