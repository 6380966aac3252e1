"""Running statistics where activation checkpoints run the forward pass again for products."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.checkpoint import create_selective_checkpoint_contexts as checkpoint_modes

from equilibrate import ESGD, frozen_statistics
from equilibrate.monitor import Monitor


def by_sgd(model, loss):
    optimizer = torch.optim.SGD(model.parameters())
    loss().backward()
    optimizer.step()


def by_probe(model, loss):
    optimizer = ESGD(model.parameters())
    value = loss()
    optimizer.probe(value)
    value.backward()
    optimizer.step()


def by_one_gradient(model, loss):
    optimizer = ESGD(model.parameters())
    optimizer.probe(loss(), backward=True)
    optimizer.step()


def by_closure(model, loss):
    optimizer = ESGD(model.parameters())

    def closure():
        optimizer.zero_grad()
        with frozen_statistics(model, optimizer):
            value = loss()
            value.backward()
        return value

    optimizer.step(closure)


def by_calibration(model, loss):
    ESGD(model.parameters()).calibrate([loss(), loss()])


def watched(model, loss):
    optimizer = torch.optim.SGD(model.parameters())
    monitor = Monitor(model, optimizer, lambda record: None, every=1, budget=None)
    value = loss()
    monitor(value)
    value.backward()
    optimizer.step()


# The way, and how often its own loop runs the forward pass: with SGD once more for the backward.
WAYS = {by_sgd: 2, by_probe: 2, by_one_gradient: 1, by_closure: 2, by_calibration: 2, watched: 2}


def _selective():
    """Modes that look every operation up; what they keep may be differentiated but once."""
    return checkpoint_modes([])


CHECKPOINTS = {"plain": {}, "selective": {"context_fn": _selective}}


@pytest.mark.parametrize("kind", CHECKPOINTS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_statistics_see_the_passes_of_the_loop_alone(way, kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    x, passes = torch.randn(64, 8), WAYS[way]
    first = model[0](x).detach()
    expected = nn.BatchNorm1d(4)
    for _ in range(passes):
        expected(first)
    part = partial(checkpoint, model[:3], use_reentrant=False, **CHECKPOINTS[kind])
    way(model, lambda: model[3](part(x)).square().mean())
    # Of the same numbers by the same operations: to the bit.
    torch.testing.assert_close(
        dict(model[1].named_buffers()), dict(expected.named_buffers()), rtol=0, atol=0
    )
