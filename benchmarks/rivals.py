"""What a user might train with instead: torch's optimizers, and Hessian methods from packages.

The packages are not requirements. They are looked for in the folder `.rivals` as well, where

    pip install --no-deps --target .rivals torchzero pytorch-optimizer

puts them. What cannot be imported is named in the records and in the table.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.loops import EVERY, ByClosure, Differencing, Graphing, Plain, Probing
from benchmarks.models import Problem
from equilibrate import ESGD

_FOLDER = Path(__file__).parent.parent / ".rivals"


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


def _by_closure(**options: Any) -> Callable[[Problem], Plain]:
    options |= {"lr": 1e-6, "warmup_probes": _START}
    return lambda problem: Differencing(problem, lambda p: ESGD(p, **options))


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
    Rival("ESGD, fused, by closure", _by_closure(fused=True)),
    Rival("ESGD of torchzero, every 20", _torchzero),
    Rival("AdaHessian, every step", _of_package("AdaHessian", 1)),
    Rival("AdaHessian, every 20", _of_package("AdaHessian", EVERY)),
    Rival("SophiaH, every 10", _of_package("SophiaH", 10)),
    Rival("SophiaH, every 20", _of_package("SophiaH", EVERY)),
]
# Large matrices keep this one busy for a minute before its first step: it comes last.
SLOW = [Rival("SOAP, every 10", _of_package("SOAP"))]
# Whole iterations as CUDA graphs, on a GPU alone.
CAPTURED = [
    Rival("SGD, captured", _torch(torch.optim.SGD)),
    Rival("AdamW, fused, captured", _torch(torch.optim.AdamW, fused=True, capturable=True)),
    Rival("ESGD, fused, captured", _esgd(fused=True, capturable=True)),
]
