"""A warm-up among ranks: a parameter counts the losses that reach it, on the ranks they are on."""

import pytest
import torch
from torch import distributed as dist

from equilibrate import ESGD
from tests.distributed.launching import run

pytestmark = [pytest.mark.distributed, pytest.mark.xdist_group("ranks")]

MICRO = 3


def _diagonals(rank, world):
    """Rank 0 trains both in every micro-batch, rank 1 the second alone, and once less."""
    first, second = (torch.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    optimizer = ESGD([first, second], lr=1e-9)
    for _ in range(MICRO - rank):
        loss = (second**4).sum() + (0 if rank else (first**4).sum())
        optimizer.probe(loss)
        loss.backward()
    for parameter in (first, second):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= world
    optimizer.step()
    return optimizer.diagonal()


def test_every_parameter_counts_its_own_losses():
    """H is diagonal, 12 w^2 for each loss: the mean over ranks of their sums is exact."""
    curvature = torch.tensor([12.0, 48.0])
    expected = [curvature * MICRO / 2, curvature * (MICRO + MICRO - 1) / 2]
    for found in run(_diagonals, 2):
        torch.testing.assert_close(found, expected)
