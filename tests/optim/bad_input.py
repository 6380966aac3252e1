"""A small network with its loss, and an optimizer that wants a probe, for what is refused."""

import pytest
import torch
from torch import Tensor, nn

from equilibrate import ESGD, JacobiSGD
from tests.optim.loops import train, train_by_closure

DOUBLE = torch.float64
X = torch.randn(6, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
BOTH = pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
WARMUP = pytest.mark.parametrize("warmup", [1, 3])
TRAINED = pytest.mark.parametrize("steps", [0, 2], ids=["fresh", "trained"])
INSTEAD = r"optimizer\.step\(closure\)"


def network() -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, dtype=DOUBLE, generator=generator) / 2)
    return model


def loss_of(model: nn.Module) -> Tensor:
    return (model(X) - X.sum(1, keepdim=True)).square().mean()


def always_due(model: nn.Module, *, steps: int, warmup: int = 3, kind=ESGD, by_closure=False):
    """An optimizer that wants a probe, fresh or some steps old."""
    optimizer = kind(model.parameters(), lr=0.01, probe_every=1, warmup_probes=warmup)
    (train_by_closure if by_closure else train)(optimizer, lambda: loss_of(model), steps)
    assert optimizer.probe_due
    return optimizer
