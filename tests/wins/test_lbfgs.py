"""The rival without noise: its line search searches."""

from itertools import pairwise

import pytest
import torch

from equilibrate.rivals.lbfgs import LBFGS
from equilibrate.wins.arena import Job, trainer
from equilibrate.wins.tasks import TASKS


@pytest.mark.parametrize("lr", [1e-3, 1.0, 1e3])
def test_a_first_step_that_is_too_long_is_shortened(lr):
    x = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    optimizer = LBFGS([x], lr=lr)

    def closure():
        optimizer.zero_grad()
        loss = (x**4).sum() + 1e3 * (x[0] - x[1]) ** 2
        loss.backward()
        return loss.item()

    before = closure()
    losses = [optimizer.step(closure) for _ in range(60)]
    assert losses[0] == before
    assert all(later <= earlier for earlier, later in pairwise(losses))
    assert losses[-1] < 1e-6 * before


@pytest.mark.parametrize("instance", [3, 4])
def test_it_fits_decays(instance):
    task = TASKS["decays"]
    one = trainer(Job(task, "lbfgs", instance, (1.0,)), 1.0, "cpu")
    (start,) = one.errors()
    one.advance(400)
    (end,) = one.errors()
    assert end < 0.01 * start
