"""What a way costs: the formula, the median over rounds, and memory as one's own loop has it."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD
from equilibrate.monitor import compare_probes, probe_costs
from equilibrate.monitor.probe_ways import CLOSURE, GRADIENT, ORDINARY, PROBE, SHARED, Ways
from equilibrate.monitor.storages import Storages

SECONDS = {GRADIENT: 4.0, ORDINARY: 5.0, PROBE: 11.0, SHARED: 9.0, CLOSURE: 14.0}


def test_a_cost_is_the_excess_over_an_ordinary_iteration_in_gradients(monkeypatch):
    """By a clock that only iterations move; one run in three takes much longer."""
    now, runs, run = [0.0], dict.fromkeys(SECONDS, 0), Ways.run

    def moved(ways, way):
        run(ways, way)
        runs[way] += 1
        now[0] += SECONDS[way] + (1000.0 if runs[way] % 3 == 0 else 0.0)

    monkeypatch.setattr(Ways, "run", moved)
    monkeypatch.setattr(probe_costs.time, "perf_counter", lambda: now[0])
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    found = compare_probes(model, lambda: model(torch.ones(1, 3)).square().mean(), rounds=3)
    assert found.gradient == 4.0
    assert [way.cost for way in found.ways] == [1.5, 1.0, 2.25]
    assert found.cheapest.call == SHARED
    assert str(found).endswith("adds 5% of a gradient to every step, one probe in 20.")


def test_every_iteration_finds_the_gradients_that_its_own_loop_leaves(monkeypatch):
    model, run, found = nn.Sequential(nn.Linear(3, 2), nn.Tanh()), Ways.run, []

    def seen(ways, way):
        found.append((way, any(p.grad is not None for p in model.parameters())))
        run(ways, way)

    monkeypatch.setattr(Ways, "run", seen)
    compare_probes(model, lambda: model(torch.ones(1, 3)).square().mean(), rounds=2)
    assert set(found) == {(way, way == CLOSURE) for way in SECONDS}


def test_memory_is_counted_where_it_goes():
    """Many activations cost a second graph most; many parameters the closure's copies."""
    torch.manual_seed(0)
    wide, x = nn.Sequential(nn.Linear(6, 200), nn.Tanh(), nn.Linear(200, 1)), torch.randn(2000, 6)
    probe, shared, closure = compare_probes(wide, lambda: wide(x).square().mean(), rounds=1).ways
    activations = 2000 * 200 * 4
    assert closure.memory < activations < shared.memory <= probe.memory
    flat = nn.Sequential(nn.Linear(1000, 1000), nn.Tanh())
    probe, shared, closure = compare_probes(
        flat, lambda: flat(torch.ones(1, 1000)).square().mean(), rounds=1
    ).ways
    assert closure.memory > shared.memory > 1000 * 1000 * 4


def _peak_of_a_loop(model, loss, every):
    """The peak of an iteration in the midst of a run by closure, gradients left over counted."""
    optimizer = ESGD(model.parameters(), lr=0.0, probe_every=every, warmup_probes=1)

    def closure():
        optimizer.zero_grad()
        found = loss()
        found.backward()
        return float(found.detach())

    for _ in range(2):
        optimizer.step(closure)
    with Storages() as counted:
        for parameter in model.parameters():
            parameter.grad = parameter.grad.clone()
        optimizer.step(closure)
    return counted.most


@pytest.mark.parametrize("batch", [1, 3000])
def test_memory_by_closure_is_that_of_a_loop(batch):
    """The loop clears gradients in the closure, so that a probe copies those of the step before."""
    model, x = nn.Sequential(nn.Linear(400, 400), nn.Tanh()), torch.ones(batch, 400)

    def loss():
        return model(x).square().mean()

    found = compare_probes(model, loss, rounds=1).ways[2].memory
    probing, ordinary = (_peak_of_a_loop(model, loss, every) for every in (1, 10**9))
    a_layer = 401 * 400 * 4
    assert found == pytest.approx(probing - ordinary, abs=a_layer / 4)
