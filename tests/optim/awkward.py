"""What a model that breaks optimizers is made of, and the loop that trains it."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor, nn

from tests.optim.loops import train, train_by_closure

DOUBLE = torch.float64
Batch = tuple[Tensor, Tensor]
Built = tuple[nn.Module, list[Batch], Callable[[nn.Module, Batch], Tensor]]


@dataclass(frozen=True)
class Awkward:
    """A model, its batches and a loss; `smooth`: differences must agree with exact products."""

    name: str
    build: Callable[[], Built]
    smooth: bool = True


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def seeded(model: nn.Module) -> nn.Module:
    """The same double-precision weights every time: normal, smaller for a larger fan-in."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.to(DOUBLE).parameters():
            fan_in = p[0].numel() if p.dim() > 1 and len(p) else 4
            value = torch.randn(p.shape, dtype=DOUBLE, generator=generator)
            p.copy_(value / max(1, fan_in) ** 0.5)
    return model


def regression(model: nn.Module, batch: Batch) -> Tensor:
    x, y = batch
    return (model(x) - y).square().mean()


def vectors_of(width: int, outputs: int = 2, count: int = 2) -> list[Batch]:
    batches = []
    for seed in range(count):
        x = normal(8, width, seed=10 + seed)
        batches.append((x, torch.sin(2 * x[:, :outputs]) + x[:, 1 : outputs + 1]))
    return batches


def sequences(outputs: int = 2) -> list[Batch]:
    return [(normal(4, 3, 4, seed=20 + s), normal(4, 3, outputs, seed=30 + s)) for s in range(2)]


def network(*extra: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), *(extra or (nn.Tanh(),)), nn.Linear(5, 2))


class Wrapped(nn.Module):
    """A network with extra parameters and a forward of its own."""

    def __init__(self, forward: Callable[..., Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._run = forward

    def forward(self, x: Tensor) -> Tensor:
        return self._run(self, x)


class Task:
    """One copy of a case; the turn says which batch its loss sees, and which dropout masks."""

    def __init__(self, case: Awkward) -> None:
        self.model, self.batches, self._loss = case.build()
        self.parameters = list(self.model.parameters())
        self.turn = 0

    def __call__(self) -> Tensor:
        return self._loss(self.model, self.batches[self.turn % len(self.batches)])

    def at(self, turn: int) -> "Task":
        self.turn = turn
        torch.manual_seed(turn)
        return self

    def mean_loss(self) -> float:
        """The mean over the batches, with the same masks each time."""
        return fmean(float(self.at(t)().detach()) for t in range(len(self.batches)))


def run(optimizer, task: Task, turns: range, *, closure: bool = False) -> None:
    """Take one step a turn; the closure sees one batch and one random state in all its runs."""
    loop = train_by_closure if closure else train
    for turn in turns:
        loop(optimizer, task.at(turn), 1)
