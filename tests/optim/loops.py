"""The loops people write, in one place: all tests train through the public names."""

from collections.abc import Callable, Iterable

from torch import Tensor
from torch.optim import Optimizer


def train(optimizer: Optimizer, loss: Callable[[], Tensor], steps: int) -> list[float]:
    """The six-line loop of the README; returns the losses."""
    losses = []
    for _ in range(steps):
        value = loss()
        optimizer.probe(value)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(value.detach()))
    return losses


def train_by_closure(optimizer: Optimizer, loss: Callable[[], Tensor], steps: int) -> list[float]:
    """torch's own closure, unchanged."""

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return [float(optimizer.step(closure).detach()) for _ in range(steps)]


def train_accumulated(
    optimizer: Optimizer, micro_losses: Iterable[Callable[[], Tensor]], steps: int
) -> None:
    """Several losses to one step, each probed and backpropagated."""
    losses = list(micro_losses)
    for _ in range(steps):
        for loss in losses:
            value = loss()
            optimizer.probe(value)
            value.backward()
        optimizer.step()
        optimizer.zero_grad()
