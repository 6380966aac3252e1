"""ESGD with `scaling="row-column"` for a stack of trials, as `optim.row_column` does it for one.

A probe takes every trial's vector through its own D^-1/2; the warm-up approaches d in rounds. The
trials of a block share the length of their warm-up, and so its rounds (`stacked_rules.structure`).
"""

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor
from torch.optim import Optimizer

from equilibrate.diagonals import row_column
from equilibrate.optim.row_column import LEAST, ROUNDS
from equilibrate.rules.stacked import denominator
from equilibrate.study.passes import Hessian
from equilibrate.study.stacked_curvature import StackedCurvature


class StackedRowColumn(StackedCurvature):
    """The stacked form of an optimizer that equilibrates rows and columns."""

    _roots: Sequence[Tensor] | None = None  # D^-1/2 during a round, which changes d meanwhile

    def _kind_of(self, optimizer: type[Optimizer]) -> ModuleType:
        return row_column

    @torch.no_grad()
    def draw(self) -> list[Tensor]:
        """Draw every trial's own next vector, and scale it by D^-1/2."""
        vectors = super().draw()
        roots = self._inverse_roots() if self._roots is None else self._roots
        return [v * root for v, root in zip(vectors, roots, strict=True)] if roots else vectors

    def _inverse_roots(self) -> list[Tensor]:
        """Return D^-1/2 of every tensor, damped as a step is."""
        found = []
        for i, diagonal in enumerate(self.state["diagonal"]):
            each = (-1, *(1,) * (diagonal.dim() - 1))
            numbers = self.damping[:, i].view(each), self.fill[:, i].view(each)
            found.append(denominator(diagonal, *numbers).rsqrt())
        return found

    def _measure_first(self, hessian: Hessian, counts: Tensor) -> None:
        """Approach d from E[(H v)^2] by d <- sqrt(d E[(H D^-1/2 v)^2]), round by round."""
        (count,) = set(counts.tolist())
        rounds = ROUNDS if count >= ROUNDS * LEAST else 1
        self._roots = []  # of the first round: none
        for number in range(rounds):
            before = [d.clone() for d in self.state["diagonal"]] if number else []
            if number:
                self._roots = self._inverse_roots()
                self.weight.zero_()  # this round's mean alone
            super()._measure_first(hessian, counts // rounds)
            if rounds == 1:  # too few for rounds: sqrt(E[(H v)^2]), which has the unit of H
                before = [torch.ones_like(d) for d in self.state["diagonal"]]
            if before:
                self._meet_halfway(before)
        self._roots = None
        self.weight.copy_(torch.where(self.weight > 0, counts, 0.0))

    def _meet_halfway(self, before: Sequence[Tensor]) -> None:
        """Put the geometric mean of the earlier and the new d in its place."""
        for diagonal, earlier in zip(self.state["diagonal"], before, strict=True):
            diagonal.mul_(earlier).sqrt_()
        flat = self._views(self.state["diagonal"])
        total = torch.stack([d.sum(1) for d in flat], 1)
        self._summarise(total, torch.stack([(d != 0).sum(1) for d in flat], 1))
