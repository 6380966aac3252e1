"""torch.compile: compiled models through step(closure), and the update itself."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from equilibrate.rules import foreach, reference
from tests.optim.loops import train, train_by_closure

# Inductor writes and builds C++: slow. aot_eager traces and differentiates the same, then runs
# torch's own kernels.
BACKENDS = ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def _forget_what_was_compiled():
    yield
    torch._dynamo.reset()


def _problem():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    return model, torch.randn(16, 6), torch.randn(16, 3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
def test_a_compiled_model_trains_by_closure(kind, backend):
    paths = []
    for compiled in (False, True):
        model, x, y = _problem()
        forward = torch.compile(model, backend=backend) if compiled else model
        optimizer = kind(model.parameters(), probe_every=5, warmup_probes=20)

        def loss(forward=forward, x=x, y=y):
            return (forward(x) - y).square().mean()

        train_by_closure(optimizer, loss, 12)
        paths.append([p.detach() for p in model.parameters()])
    # A rounding u of the gradient is u / e = u^(2/3) / 1.4 in a product by differences.
    torch.testing.assert_close(*paths, rtol=10 * torch.finfo(torch.float32).eps ** (2 / 3), atol=0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_update_compiles_whole(momentum, backend):
    settings = {"lr": 0.1, "momentum": momentum, "nesterov": momentum > 0, "weight_decay": 0.01}
    settings |= {"maximize": False, "damping": [1e-3, 0.0], "fill": [0.0, 0.5]}
    fast = torch.compile(foreach.step, backend=backend, fullgraph=True)
    results = []
    for step in (reference.step, fast):
        torch.manual_seed(0)
        parameters, gradients = ([torch.randn(5, 3), torch.randn(7)] for _ in range(2))
        diagonals = [torch.rand(5, 3), torch.arange(7.0)]
        buffers = [torch.ones(5, 3), torch.ones(7)] if momentum else None
        for _ in range(3):
            step(parameters, gradients, diagonals, buffers, **settings)
        results.append(parameters)
    torch.testing.assert_close(*results)


@pytest.mark.slow  # the loop around the update is Python: it is traced anew for some steps
def test_a_compiled_step_is_the_step():
    paths = []
    for compiled in (False, True):
        model, x, y = _problem()
        optimizer = ESGD(model.parameters(), probe_every=3)
        if compiled:
            optimizer.step = torch.compile(optimizer.step, backend="aot_eager")
        train(optimizer, lambda model=model, x=x, y=y: (model(x) - y).square().mean(), 8)
        paths.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(*paths)
