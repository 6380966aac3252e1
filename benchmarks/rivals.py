"""What a user might train with instead: torch's optimizers, and Hessian methods from packages.

The packages are not requirements. They are looked for in the folder `.rivals` as well, where

    pip install --no-deps --target .rivals torchzero pytorch-optimizer

puts them. What cannot be imported is named in the records and in the table.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.models import Problem
from equilibrate import ESGD, math_attention

EVERY = 20  # iterations between two measurements, at equal frequency
_FOLDER = Path(__file__).parent.parent / ".rivals"


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
            with self._attention():
                losses = (problem.loss(1.0) for _ in range(calibrated))
                self.optimizer.calibrate(losses, release=True)

    def iterate(self) -> None:
        if self.share < 1:
            self.iterate_by_part()
            return
        with self._attention():
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
            with self._attention():
                self.optimizer.probe(self.problem.loss(self.share))
        self.problem.loss(1.0).backward()
        self._finish()

    def _finish(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1

    def _attention(self) -> Any:
        return math_attention(self.optimizer) if self.problem.attends else nullcontext()


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


@dataclass(frozen=True)
class Rival:
    """A way to train: `start` makes the loop; an import that fails says what is missing."""

    name: str
    start: Callable[[Problem], Plain]
    only: str | None = None  # a kind of device


def _muon(parameters: list[Tensor]) -> Any:
    """Muon moves matrices; AdamW moves the rest, as its authors recommend."""
    matrices = [p for p in parameters if p.dim() == 2]
    return Together(
        torch.optim.Muon(matrices, lr=1e-6),
        torch.optim.AdamW([p for p in parameters if p.dim() != 2], lr=1e-6),
    )


class Together:
    """Two optimizers behind the face of one."""

    def __init__(self, *optimizers: Any) -> None:
        self.optimizers = optimizers

    @property
    def state(self) -> list[Any]:
        return [dict(o.state) for o in self.optimizers]

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()


def _package(name: str) -> Any:
    if _FOLDER.is_dir() and str(_FOLDER) not in sys.path:
        sys.path.append(str(_FOLDER))
    return __import__(name)


def _of_package(name: str, period: int | None = None, **options: Any) -> Callable[[Problem], Plain]:
    """Return the start of an optimizer of pytorch-optimizer; with a period it takes a Hessian."""

    def start(problem: Problem) -> Plain:
        make = getattr(_package("pytorch_optimizer"), name)
        if period is None:
            return Plain(problem, lambda p: make(p, lr=1e-6, **options))
        options["update_period"] = period
        return Graphing(problem, lambda p: make(p, lr=1e-6, **options), period)

    return start


def _torchzero(problem: Problem) -> Plain:
    tz = _package("torchzero")
    make = lambda p: tz.Optimizer(p, tz.m.ESGD(update_freq=EVERY), tz.m.LR(1e-9))  # noqa: E731
    return ByClosure(problem, make)


def _torch(kind: Any, **options: Any) -> Callable[[Problem], Plain]:
    return lambda problem: Plain(problem, lambda p: kind(p, lr=1e-6, **options))


_START = 3  # vectors before the first step: fewer than by default, for it is not timed


def _esgd(
    share: float = 1.0, joined: bool = True, calibrated: int = 0, **options: Any
) -> Callable[[Problem], Plain]:
    options |= {"lr": 1e-6, "warmup_probes": _START}
    how = share, joined, calibrated
    return lambda problem: Probing(problem, lambda p: ESGD(p, **options), *how)


RIVALS = [
    Rival("SGD", _torch(torch.optim.SGD)),
    Rival("RMSprop", _torch(torch.optim.RMSprop)),
    Rival("AdamW, foreach", _torch(torch.optim.AdamW, foreach=True)),
    Rival("AdamW, fused", _torch(torch.optim.AdamW, fused=True)),
    Rival("Muon + AdamW", lambda problem: Plain(problem, _muon)),
    Rival("ESGD, probe and backward apart", _esgd(joined=False)),
    Rival("ESGD", _esgd()),
    Rival("ESGD, fused", _esgd(fused=True)),
    Rival("ESGD, fused, calibrated", _esgd(calibrated=_START, fused=True)),
    Rival("ESGD, fused, probing a quarter", _esgd(0.25, fused=True)),
    Rival("ESGD of torchzero, every 20", _torchzero),
    Rival("AdaHessian, every step", _of_package("AdaHessian", 1)),
    Rival("AdaHessian, every 20", _of_package("AdaHessian", EVERY)),
    Rival("SophiaH, every 10", _of_package("SophiaH", 10)),
    Rival("SophiaH, every 20", _of_package("SophiaH", EVERY)),
]
# Large matrices keep this one busy for a minute before its first step: it comes last.
SLOW = [Rival("SOAP, every 10", _of_package("SOAP"))]
