"""Measuring for row-and-column equilibration: the same products, with vectors scaled beforehand.

d stands on both sides of d_i = E[(H D^-1/2 v)_i^2], so a probe takes its vector through the present
D^-1/2, and the warm-up approaches d in rounds instead of averaging all its vectors alike: from
d = E[(H v)^2], which undoes any bad scaling of the parameters up to a common factor, by

    d <- sqrt(d E[(H D^-1/2 v)^2]),

which is rid of the factor after one round and halves what else is wrong (`exact.row_column`). The
warm-up's vectors are shared among the rounds: the cost is that of row equilibration.

What joins later stands beside columns that are scaled already: with v in its own as drawn,
(H v + H D^-1/2 v)^2 would add the unit of H^2 to that of H, and its steps would depend on the scale
of the loss. So its columns start with the mean of the others' d.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from torch import Tensor

from equilibrate.diagonals import row_column
from equilibrate.distributed import local
from equilibrate.optim.damping import damping_and_fill
from equilibrate.optim.live_loss import LiveLoss
from equilibrate.optim.measuring import Hessian
from equilibrate.optim.moving import CurvatureOptimizer
from equilibrate.optim.state import summarise
from equilibrate.rules.reference import denominator

ROUNDS = 4
LEAST = 4  # vectors in a round: E[1/d] is infinite at one or two

_NOT_HERE = (
    'scaling="row-column" multiplies H with vectors of its own choice, so products measured '
    "elsewhere cannot be used: call optimizer.probe(loss) in every iteration instead of observe."
)


class RowColumn(CurvatureOptimizer):
    """An optimizer that can equilibrate rows and columns: where `_kind` is `row_column`."""

    _roots: dict[Tensor, Any]  # D^-1/2 during a round of the warm-up, which changes d meanwhile

    def _forget_volatile(self) -> None:
        super()._forget_volatile()
        self._roots = {}

    def calibrate(self, losses: Iterable[Tensor], *, release: bool = False) -> int:
        """Measure without stepping, as `Measuring.calibrate`; after a warm-up on the first loss."""
        rest = iter(losses)
        waiting = list(islice(rest, 1))  # taken out again below, so that nothing here keeps a graph
        if not waiting:
            return super().calibrate([])
        if self._kind is row_column and not (self._pending or self._warmed):
            warm = {p: g["warmup_probes"] for p, g in self._groups().items()}
            fresh = {p: warm[p] for p in self._unmeasured()}
            with self._provisionally(fresh):
                self._warm_up(LiveLoss(waiting[0], self._trainable()), fresh)
            self._warmed, self._before = [], None  # by a whole loss, not by a part of a step's
        first = (waiting.pop() for _ in range(1))
        return super().calibrate(chain(first, rest), release=release)

    def observe(self, vectors: Sequence[Tensor | None], products: Sequence[Tensor | None]) -> None:
        """Add products computed elsewhere, as `Measuring.observe`; not for rows and columns."""
        if self._kind is row_column:
            raise ValueError(_NOT_HERE)
        super().observe(vectors, products)

    def _draw(self, index: int | None = None) -> list[Tensor]:
        """Draw this probe's vector, and scale it by D^-1/2 where columns are equilibrated too."""
        vectors = super()._draw(index)
        if self._kind is row_column:
            for parameter, vector in zip(self._trainable(), vectors, strict=True):
                held = self._roots.get(parameter)
                local(vector).mul_(self._inverse_root(parameter) if held is None else held)
        return vectors

    def _fold(self, contributions: Mapping[Tensor, Tensor], asked: Iterable[Tensor] = ()) -> bool:
        """Fold one vector's contributions; a first one without a warm-up is a round of its own."""
        if self._kind is not row_column or self._roots:
            return super()._fold(contributions, asked)
        new, start = self._unmeasured(list(contributions)), self._start()
        folded = super()._fold(contributions, asked)
        if folded and new:
            self._meet_halfway(dict.fromkeys(new, start))
        return folded

    def _warm_up(self, hessian: Hessian, fresh: dict[Tensor, int]) -> None:
        """Fold the warm-up's vectors: all alike, or in rounds that approach d."""
        if self._kind is not row_column:
            super()._warm_up(hessian, fresh)
            return
        rounds = ROUNDS if min(fresh.values(), default=0) >= ROUNDS * LEAST else 1
        try:
            for _ in range(rounds if fresh else 0):
                self._approach(hessian, fresh, rounds)
        finally:
            self._roots = {}
        self._warmed = list(dict.fromkeys(self._warmed))
        for parameter in fresh:
            if self._measured(parameter):
                self.state[parameter]["weight"] = float(fresh[parameter])

    def _approach(self, hessian: Hessian, fresh: dict[Tensor, int], rounds: int) -> None:
        """Make one of some rounds with its share of the vectors."""
        self._roots = {p: self._inverse_root(p) for p in self._trainable()}
        start = self._start()
        before: dict[Tensor, Tensor | float] = {}
        for parameter in filter(self._measured, fresh):  # none in the first round
            before[parameter] = local(self.state[parameter]["diagonal"]).clone()
            self.state[parameter]["weight"] = 0.0  # this round's mean alone
        super()._warm_up(hessian, {p: count // rounds for p, count in fresh.items()})
        if rounds == 1:  # too few for rounds: the only one is a whole one
            before = dict.fromkeys(filter(self._measured, fresh), start)
        self._meet_halfway(before)

    def _meet_halfway(self, before: Mapping[Tensor, Tensor | float]) -> None:
        """Put the geometric mean of the earlier and the new d in its place."""
        for parameter, earlier in before.items():
            local(self.state[parameter]["diagonal"]).mul_(earlier).sqrt_()
        summarise(row_column, [self.state[p] for p in before])
        self._renew_mean()

    def _start(self) -> float:
        """Return the d that stands for one not measured yet: the mean of those that are.

        Where there are none it is one, as good as any: a factor common to all drops out of a round.
        """
        return float(self.param_groups[0]["mean_scale"]) or 1.0

    def _inverse_root(self, parameter: Tensor) -> Any:
        """Return D^-1/2 of one tensor, damped as a step is; one number before it is measured."""
        if not self._measured(parameter):
            return self._start() ** -0.5
        group = self._groups()[parameter]
        (damping,), (fill,) = damping_and_fill(group, [parameter], self.state)
        return denominator(local(self.state[parameter]["diagonal"]), damping, fill).rsqrt()
