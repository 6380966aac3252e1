"""The suggested learning rate against the dense answer, and against what training says."""

import math

import pytest
import torch

from equilibrate import ESGD, hessian
from equilibrate.exact import equilibration
from equilibrate.monitor import suggest_learning_rate
from tests.optim.loops import train


def _network(width=6):
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 2)
    ).double()
    x, y = torch.randn(64, 4).double(), torch.randn(64, 2).double()
    return model, lambda: (model(x) - y).square().mean()


def test_it_is_two_over_the_radius_of_the_dense_matrix():
    """With the exact D the rest is Lanczos, which is exact after as many steps as parameters."""
    model, loss = _network()
    parameters = list(model.parameters())
    matrix = hessian(loss(), parameters)
    probes = 4000
    found = suggest_learning_rate(loss(), parameters, damping=0.0, probes=probes, steps=44)
    diagonal = equilibration(matrix)
    radius = torch.linalg.eigvals(matrix / diagonal[:, None]).abs().max()
    # D is off by at most about 4 / sqrt(probes) of itself in the worst of 44 elements.
    assert found.lr == pytest.approx(2 / float(radius), rel=4 / math.sqrt(probes))
    assert found.products == probes + 44


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_scale_of_the_loss_changes_nothing(factor):
    model, loss = _network()
    parameters = list(model.parameters())
    plain = suggest_learning_rate(loss(), parameters)
    scaled = suggest_learning_rate(factor * loss(), parameters)
    assert scaled.lr == pytest.approx(plain.lr, rel=1e-6)


def test_nothing_is_changed_and_the_loss_can_still_be_used():
    model, loss = _network()
    before = [p.detach().clone() for p in model.parameters()]
    state = torch.get_rng_state()
    value = loss()
    suggest_learning_rate(value, model.parameters())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(state, torch.get_rng_state())
    optimizer = ESGD(model.parameters())
    optimizer.probe(value)
    value.backward()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_training_descends_at_half_of_it_and_fails_at_a_hundred_times():
    ends = {}
    for factor in (0.5, 100.0):
        model, loss = _network()
        rate = suggest_learning_rate(loss(), model.parameters()).lr
        losses = train(ESGD(model.parameters(), factor * rate), loss, 60)
        ends[factor] = losses[-1] / losses[0]
    assert ends[0.5] < 0.8
    assert not ends[100.0] < 1


def test_a_loss_without_curvature_sets_no_limit():
    w = torch.ones(3, requires_grad=True)
    assert suggest_learning_rate((2 * w).sum() + 0 * w.square().sum(), [w]).lr == math.inf


def test_curvature_that_is_not_finite_is_refused():
    w = torch.zeros(1, requires_grad=True)
    with pytest.raises(ValueError, match="not finite"):
        suggest_learning_rate(w.sqrt().sum() * w.sum(), [w])
