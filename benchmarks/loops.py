"""The loops that people write around an optimizer: first-order ones, and those with a Hessian.

Every loop holds a model, its optimizer and a count of iterations; `block` is what gets timed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.models import Problem

EVERY = 20  # iterations between two measurements, at equal frequency


@contextmanager
def twice_differentiable(wanted: bool) -> Iterator[None]:
    """Use the attention kernel that has a second derivative, where one is wanted."""
    with sdpa_kernel(SDPBackend.MATH) if wanted else nullcontext():
        yield


class Plain:
    """The usual loop around a first-order optimizer."""

    hessian = False

    def __init__(self, problem: Problem, make: Callable[..., Any]) -> None:
        self.problem, self.optimizer = problem, make(problem.parameters())
        self.steps = 0

    def iterate(self) -> None:
        self.problem.loss(1.0).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1

    def block(self) -> None:
        """Run as many iterations as hold one measurement at equal frequency."""
        for _ in range(EVERY):
            self.iterate()

    def state_bytes(self) -> int:
        """Return the bytes of everything the optimizer keeps, wherever it keeps it."""
        return _bytes_in(self.optimizer.state, set())


class Probing(Plain):
    """The loop around ESGD: one line more; `share` of the batch is probed.

    `joined` computes one gradient for the probe and the step; `calibrated` losses, each with a
    graph of its own, take the place of the warm-up.
    """

    hessian = True

    def __init__(
        self,
        problem: Problem,
        make: Callable[..., Any],
        share: float = 1.0,
        joined: bool = True,
        calibrated: int = 0,
    ) -> None:
        super().__init__(problem, make)
        self.share, self.joined = share, joined
        if calibrated:
            losses = (problem.loss(1.0) for _ in range(calibrated))
            self.optimizer.calibrate(losses, release=True)

    def iterate(self) -> None:
        if self.share < 1:
            self.iterate_by_part()
            return
        loss = self.problem.loss(1.0)
        if self.joined:
            self.optimizer.probe(loss, backward=True)
        else:
            self.optimizer.probe(loss)
            loss.backward()
        self._finish()

    def iterate_by_part(self) -> None:
        """Probe a part of the batch before the pass of the whole: their graphs never meet."""
        if self.optimizer.probe_due:
            self.optimizer.probe(self.problem.loss(self.share))
        self.problem.loss(1.0).backward()
        self._finish()

    def _finish(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1


class Differencing(Plain):
    """The loop around ESGD with torch's own closure: differences of gradients, no double graph."""

    hessian = True

    def iterate(self) -> None:
        def closure() -> Tensor:
            self.optimizer.zero_grad()
            loss = self.problem.loss(1.0)
            loss.backward()
            return loss

        self.optimizer.step(closure)
        self.steps += 1


class Graphing(Plain):
    """A loop that keeps the gradient's graph whenever the optimizer takes a Hessian from it."""

    hessian = True

    def __init__(self, problem: Problem, make: Callable[..., Any], period: int) -> None:
        super().__init__(problem, make)
        self.period = period

    def iterate(self) -> None:
        due = self.steps % self.period == 0
        with twice_differentiable(due and self.problem.attends):
            self.problem.loss(1.0).backward(create_graph=due)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1


class ByClosure(Plain):
    """The loop of torchzero, whose optimizers evaluate a closure themselves."""

    hessian = True

    def iterate(self) -> None:
        due = self.steps % EVERY == 0

        def closure(backward: bool = True) -> Tensor:
            with twice_differentiable(due and self.problem.attends):
                loss = self.problem.loss(1.0)
            if backward:
                self.optimizer.zero_grad()
                loss.backward()
            return loss

        self.optimizer.step(closure)
        self.steps += 1

    def state_bytes(self) -> int:
        return _bytes_in([m.state for m in self.optimizer.flat_modules], set())


def _bytes_in(kept: Any, seen: set[int]) -> int:
    if isinstance(kept, Tensor):
        new = kept.data_ptr() not in seen
        seen.add(kept.data_ptr())
        return kept.nbytes if new and kept.dim() else 0
    if isinstance(kept, dict):
        return sum(_bytes_in(value, seen) for value in kept.values())
    if isinstance(kept, (list, tuple)):
        return sum(_bytes_in(value, seen) for value in kept)
    return 0
