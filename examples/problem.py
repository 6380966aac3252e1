"""The small regression that the examples train, so that they can be compared."""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

STEPS = 40
BATCH = 32


def make_model() -> nn.Module:
    """Return the same network each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


def make_data() -> TensorDataset:
    """Return STEPS batches of BATCH cases, in one order."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(STEPS * BATCH, 8, generator=generator)
    return TensorDataset(x, x.sin().prod(1, keepdim=True))


def result(model: nn.Module) -> list[Tensor]:
    """Return the trained parameters, whole ones where they are sharded."""
    found = [p.detach() for p in model.parameters()]
    return [p.full_tensor() if hasattr(p, "full_tensor") else p for p in found]
