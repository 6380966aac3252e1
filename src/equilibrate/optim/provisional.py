"""A first measurement is provisional until its step: an iteration that is given up undoes it.

The warm-up folds its vectors at once, for what follows in the same iteration needs the diagonal.
On the first of several micro-batches it measures a part of the step's loss, and only the step tells
how many there were. So what was there before is remembered until then: an error, a step that
GradScaler skips and a `zero_grad` after the backward put it back, and a checkpoint holds it.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from equilibrate.optim.folding import Folding
from equilibrate.optim.pending import Pending
from equilibrate.optim.state import State, allocate, any_gradient

# One number for the whole optimizer.
_OF_ALL = ("probe_index", "mean_scale", "first_mean_scale", "initial_scale")
_OF_GROUP = (*_OF_ALL, "steps_since_probe")


@dataclass(frozen=True)
class Before:
    """What an optimizer was before some parameters were measured for the first time.

    Numbers alone: what was never measured has a diagonal of zeros.
    """

    groups: list[dict[str, Any]]  # the numbers that a warm-up changes
    unmeasured: dict[Tensor, bool | None]  # whether they were absent; None had no state
    joining: list[Tensor]

    def put_back(self, optimizer: Optimizer) -> None:
        """Make the optimizer what it was; a group that was added since stays."""
        for group in optimizer.param_groups[len(self.groups) :]:
            group.update({name: self.groups[0][name] for name in _OF_ALL})
        for group, numbers in zip(optimizer.param_groups, self.groups, strict=False):
            group.update(numbers)
        for parameter, absent in self.unmeasured.items():
            state: State = optimizer.state.pop(parameter, {})
            if absent is not None:
                new = allocate(parameter, 0.0) | {"absent": absent}
                kept = {name: state[name] for name in ("step", "momentum_buffer") if name in state}
                optimizer.state[parameter] = new | kept


class Provisional(Folding):
    """An optimizer that takes back what an iteration without a step has measured first."""

    _before: Before | None  # the warm-ups since the last step
    _reached: dict[Tensor, int]  # by what was warmed up: the losses since that depend on it

    @property
    def measuring(self) -> bool:
        """Whether a product is being taken: what backward hooks see then is no gradient.

        In `step(closure)` the closure is being run at a displaced point.
        """
        return self._measuring

    @contextmanager
    def _taking_products(self) -> Iterator[None]:
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients, and with them all that was measured, if a backward has been run.

        So an iteration given up after its backward leaves nothing behind, while `probe`,
        `zero_grad`, `backward`, `step` (the order of some trainers) keeps what was measured.
        """
        # A closure zeroes its gradients at displaced points as well: that gives nothing up.
        measured = not self._measuring and (self._pending or self._warmed)
        if measured and self._backpropagated():
            self._give_up()
        super().zero_grad(set_to_none)
        self._note_gradients()  # the zeroing itself is no backward

    def state_dict(self) -> dict[str, Any]:
        """Return torch's state dict, as it was before an iteration that has not stepped yet."""
        with self._as_before():
            return super().state_dict()

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled and copied: likewise."""
        with self._as_before():
            kept = super().__getstate__()
            if self._before is not None:  # what torch hands out is the optimizer's own
                groups = [dict(group) for group in kept["param_groups"]]
                kept |= {"state": kept["state"].copy(), "param_groups": groups}
            return kept

    def _forget_volatile(self) -> None:
        super()._forget_volatile()
        self._before, self._reached = None, {}

    def _as_it_is(self, unmeasured: Iterable[Tensor]) -> Before:
        groups = [{name: group[name] for name in _OF_GROUP} for group in self.param_groups]
        absent = {p: self.state[p]["absent"] if p in self.state else None for p in unmeasured}
        return Before(groups, absent, list(self._joining))

    @contextmanager
    def _provisionally(self, fresh: Collection[Tensor]) -> Iterator[None]:
        """Measure some parameters first inside: undone on an error, else until the step."""
        if not fresh:
            yield
            return
        self._unsettle()
        before, warmed = self._as_it_is(self._unmeasured()), list(self._warmed)
        try:
            yield
        except BaseException:
            before.put_back(self)
            self._warmed, self._joining, self._damping_of = warmed, before.joining, {}
            raise
        if self._before is not None:  # of another warm-up in this iteration: it was before both
            before = replace(self._before, unmeasured=before.unmeasured | self._before.unmeasured)
        self._before = before

    @contextmanager
    def _as_before(self) -> Iterator[None]:
        """Be what the optimizer was before the warm-ups of this iteration, inside."""
        if self._before is None:
            yield
            return
        states, now = dict(self.state), self._as_it_is(())
        self._before.put_back(self)
        try:
            yield
        finally:
            now.put_back(self)
            self.state.clear()  # refilled in the order it had
            self.state.update(states)

    def _give_up(self) -> None:
        """Forget all that was measured since the last step."""
        self._losses.now = None
        self._pending, self._warmed, self._reached = Pending(), [], {}
        if self._before is not None:
            self._before.put_back(self)
            self._joining = self._before.joining
        self._before, self._damping_of = None, {}

    def _note_gradients(self) -> None:
        """Remember the gradients as they are, while it matters whether a backward follows."""
        if self._pending or self._warmed:
            self._noted = self._gradient_versions()

    def _backpropagated(self) -> bool:
        """Tell whether gradients have come since they were noted; clearing them is no backward."""
        pairs = zip_longest(self._noted, self._gradient_versions(), fillvalue=(0, 0))
        changed = [p for p, (then, now) in zip(self._all(), pairs, strict=False) if then != now]
        return any(map(any_gradient, changed))

    def _gradient_versions(self) -> list[tuple[int, int]]:
        """Return what identifies the present content of every gradient."""
        return [(0, 0) if p.grad is None else (id(p.grad), p.grad._version) for p in self._all()]
