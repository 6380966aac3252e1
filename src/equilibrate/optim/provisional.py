"""A first measurement is provisional until its step: an iteration that is given up undoes it.

The warm-up folds its vectors at once, for what follows in the same iteration needs the diagonal.
On the first of several micro-batches it measures a part of the step's loss, and only the step tells
how many there were. So what was there before is remembered until then: an error, a step that
GradScaler skips and a `zero_grad` after the backward put it back, and a checkpoint holds it.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from weakref import ref

from torch import Tensor
from torch.optim import Optimizer

from equilibrate.distributed import Word
from equilibrate.optim.folding import Folding
from equilibrate.optim.pending import Pending
from equilibrate.optim.state import State, allocate

_OF_GROUP = ("probe_index", "steps_since_probe", "mean_scale", "first_mean_scale")


@dataclass(frozen=True)
class Before:
    """What an optimizer was before some parameters were measured for the first time."""

    groups: list[dict[str, Any]]  # the numbers that a warm-up changes
    known: dict[Tensor, bool]  # the parameters, and whether they had a state

    @classmethod
    def of(cls, optimizer: Optimizer, fresh: Iterable[Tensor]) -> Self:
        """Remember numbers alone: what was never measured has a diagonal of zeros."""
        groups = [{name: group[name] for name in _OF_GROUP} for group in optimizer.param_groups]
        return cls(groups, {p: p in optimizer.state for p in fresh})

    def and_then(self, later: "Before") -> "Before":
        """Return what was before both of two warm-ups, of which this is the earlier."""
        return Before(self.groups, later.known | self.known)

    def put_back(self, optimizer: Optimizer) -> None:
        """Make the optimizer what it was; a group that was added since stays."""
        for group, numbers in zip(optimizer.param_groups, self.groups, strict=False):
            group.update(numbers)
        for parameter, had_state in self.known.items():
            state: State = optimizer.state.pop(parameter, {})
            if had_state:
                new = allocate(parameter, 0.0)
                kept = {name: state[name] for name in ("step", "momentum_buffer") if name in state}
                optimizer.state[parameter] = new | kept


class Provisional(Folding):
    """An optimizer that takes back what an iteration without a step has measured first."""

    _before: Before | None  # the warm-ups since the last step

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
        if self._measuring:
            pass  # a closure zeroes its gradients at displaced points as well
        elif self._pending or self._warmed:
            if self._noted != self._gradient_versions():
                self._give_up()
        elif self._losses and not self._as_stepped():
            self._losses = 0  # of an iteration that was given up, and measured nothing
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
        self._before = None

    @contextmanager
    def _provisionally(self, fresh: Iterable[Tensor]) -> Iterator[None]:
        """Measure some parameters first inside: undone on an error, else until the step."""
        if not (chosen := list(fresh)):
            yield
            return
        self._unsettle()
        before, warmed, joining = Before.of(self, chosen), list(self._warmed), list(self._joining)
        try:
            yield
        except BaseException:
            before.put_back(self)
            self._warmed, self._joining, self._damping_of = warmed, joining, {}
            raise
        self._before = before if self._before is None else self._before.and_then(before)

    @contextmanager
    def _as_before(self) -> Iterator[None]:
        """Be what the optimizer was before the warm-ups of this iteration, inside."""
        if self._before is None:
            yield
            return
        states, now = dict(self.state), Before.of(self, ())
        self._before.put_back(self)
        try:
            yield
        finally:
            now.put_back(self)
            self.state.clear()  # refilled in the order it had
            self.state.update(states)

    def _give_up(self) -> None:
        """Forget all that was measured since the last step."""
        self._pending, self._losses, self._warmed, self._joining = Pending(), 0, [], []
        if self._before is not None:
            self._before.put_back(self)
        self._before, self._damping_of = None, {}

    def _complete_warm_up(self, words: Sequence[Word] = ()) -> None:
        """Make a warm-up on the first of several micro-batches stand for all of them.

        Their losses add up to n times the first, whether or not each was divided by n, and so do
        their Hessians. Ranks may differ in n: what counts is the mean.
        """
        losses = sum(w.losses for w in words) / len(words) if words else self._losses
        warmed, self._losses, self._warmed, self._before = self._warmed, 0, [], None
        for parameter in warmed if losses > 1 else []:
            if self._measured(parameter):
                self.state[parameter]["diagonal"].mul_(losses)
                self.state[parameter]["scale"] *= losses
        if warmed and losses > 1:
            self._renew_mean()

    def _note_gradients(self) -> None:
        """Remember the gradients as they are, while it matters whether a backward follows."""
        if self._pending or self._warmed:
            self._noted = self._gradient_versions()

    def _note_step(self, gradients: Iterable[Tensor]) -> None:
        """Remember one gradient of a step, so as to know that no backward has come since."""
        first = next(iter(gradients), None)
        self._stepped = None if first is None else (ref(first), first._version)

    def _as_stepped(self) -> bool:
        """Tell whether the gradients are still those of the last step: zeroing replaces them."""
        held, version = self._stepped or (lambda: None, 0)
        first = held()
        return first is not None and first._version == version

    def _gradient_versions(self) -> list[tuple[int, int]]:
        """Return what identifies the present content of every gradient."""
        return [(0, 0) if p.grad is None else (id(p.grad), p.grad._version) for p in self._all()]
