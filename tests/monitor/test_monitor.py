"""The monitor beside a training run: nothing changes, and trouble is told, not raised."""

import math

import pytest
import torch
from torch import nn

from equilibrate.monitor import Monitor
from tests.monitor.watched import EVERY_OPTIMIZER, small_model
from tests.optim.watching import same


def _train(make, watch, steps=6):
    model = small_model()
    optimizer = make(model.parameters())
    monitor = watch(model, optimizer)
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 6)
        loss = (model(x) - x[:, :3]).square().mean()
        if hasattr(optimizer, "probe"):
            optimizer.probe(loss)
        monitor(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return {
        "model": dict(model.state_dict()),
        "optimizer": optimizer.state_dict(),
        "losses": losses,
        "random": torch.get_rng_state(),
    }


@EVERY_OPTIMIZER
def test_a_run_with_the_monitor_at_every_step_is_the_same_to_the_bit(make):
    seen = []

    def watched(model, optimizer):
        return Monitor(model, optimizer, seen.append, every=1, budget=None, layer_spectra=2)

    alone = _train(make, lambda model, optimizer: lambda loss: None)
    beside = _train(make, watched)
    assert [record["step"] for record in seen] == list(range(6))
    assert all("sharpness" in record for record in seen)
    assert same(alone, beside)


def test_the_monitor_leaves_gradients_and_hooks_alone():
    model = small_model()
    fired = []
    for p in model.parameters():
        p.register_hook(lambda g: fired.append(1))
    loss = model(torch.randn(8, 6)).square().mean()
    monitor = Monitor(model, torch.optim.SGD(model.parameters()), lambda r: None, budget=None)
    monitor(loss)
    assert fired == []
    assert all(p.grad is None for p in model.parameters())


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g


TROUBLED = {
    "not finite": lambda m, x: (m(x) / 0.0).sum() * float("nan"),
    "once_differentiable": lambda m, x: Once.apply(m(x)).square().mean(),
    "does not depend": lambda m, x: torch.ones((), requires_grad=True) * 2,
}


@pytest.mark.parametrize(("reason", "loss"), TROUBLED.items(), ids=TROUBLED.keys())
def test_a_loss_without_curvature_is_said_once_and_training_goes_on(reason, loss):
    model = nn.Linear(3, 2)
    seen = []
    monitor = Monitor(model, torch.optim.SGD(model.parameters()), seen.append, every=1, budget=None)
    with pytest.warns(UserWarning, match="cannot measure") as warned:
        list(map(monitor, [loss(model, torch.randn(4, 3)) for _ in range(3)]))
    assert len(warned) == 1
    assert reason in str(warned[0].message)
    assert [("unmeasured" in r, "sharpness" in r) for r in seen] == [(True, False)] * 3


@pytest.mark.parametrize("options", [{"every": 0}, {"budget": 0.0}, {"probes": 1}, {"steps": 1}])
def test_arguments_are_checked(options):
    model = nn.Linear(2, 1)
    with pytest.raises(ValueError, match=next(iter(options))):
        Monitor(model, torch.optim.SGD(model.parameters()), print, **options)


@EVERY_OPTIMIZER
def test_awkward_parameters_are_watched(make):
    """A scalar, an empty tensor, one without a gradient; two steps, and no NaN where it counts."""
    scalar = torch.tensor(0.5, requires_grad=True)
    empty = torch.zeros(0, 3, requires_grad=True)
    unused, used = torch.ones(3, requires_grad=True), torch.rand(4, requires_grad=True)
    parameters = [scalar, empty, unused, used]
    optimizer = make(parameters)
    seen = []
    named = [("scalar", scalar), ("empty", empty), ("unused", unused), ("used", used)]
    monitor = Monitor(named, optimizer, seen.append, every=1, budget=None)
    for _ in range(2):
        loss = (scalar * used).sin().sum() + empty.sum()
        if hasattr(optimizer, "probe"):
            optimizer.probe(loss)
        monitor(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert [record["layers/unused/share_flat"] for record in seen] == [1.0, 1.0]
    assert all(math.isfinite(record["sharpness"]) for record in seen)
    assert all(math.isfinite(record["preconditioned/sharpness"]) for record in seen)
