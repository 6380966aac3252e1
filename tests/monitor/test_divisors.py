"""The divisor read from an optimizer is what its step divides by; where its descent turns."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from equilibrate.monitor.denominators import divisor_of, stability_limit
from tests.cases import NETWORK
from tests.monitor.watched import EVERY_OPTIMIZER, measured


@EVERY_OPTIMIZER
def test_quantiles_of_diagonal_and_learning_rate_are_the_optimizer_s(make):
    record, optimizer, parameters, _ = measured(make)
    group = optimizer.param_groups[0]
    for i, p in enumerate(parameters):
        found = divisor_of(optimizer, p, group)
        if found is None:
            continue
        rate = group["lr"] / found.divisor
        assert record[f"layers/p{i}/diagonal/q95"] == float(found.diagonal.quantile(0.95))
        assert record[f"layers/p{i}/learning_rate/median"] == float(rate.quantile(0.5))


@pytest.mark.parametrize("name", ["esgd", "floor", "jacobi", "adam", "rmsprop", "adagrad"])
def test_the_divisor_is_what_the_step_divides_by(name):
    """A step without momentum or averaging moves by lr g / divisor."""
    plain = {
        "esgd": lambda p: ESGD(p, lr=0.05, probe_every=1000),
        "floor": lambda p: ESGD(p, lr=0.05, probe_every=1000, mean_floor=True),
        "jacobi": lambda p: JacobiSGD(p, lr=0.01, probe_every=1000),
        "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.0, 0.9)),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    }[name]
    _, optimizer, parameters, _ = measured(plain)
    if name == "floor":
        optimizer.param_groups[0]["first_mean_scale"] *= 4  # as if curvature had fallen
    loss = NETWORK.build()[1]
    value = loss(_stack(parameters))
    if hasattr(optimizer, "probe"):
        optimizer.probe(value)
    value.backward()
    before = [p.detach().clone() for p in parameters]
    gradients = [p.grad.clone() for p in parameters]
    optimizer.step()
    group = optimizer.param_groups[0]
    for p, old, g in zip(parameters, before, gradients, strict=True):
        divisor = divisor_of(optimizer, p, group).divisor
        torch.testing.assert_close(old - p.detach(), group["lr"] * g / divisor)


def _stack(parameters):
    """The network of the case with these very parameters."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    for layer, pair in ((model[0], parameters[:2]), (model[2], parameters[2:])):
        layer.weight, layer.bias = pair
    return model


LIMITS = {
    "plain": ({}, 2.0),
    "heavy ball": ({"momentum": 0.9}, 3.8),
    "nesterov": ({"momentum": 0.9, "nesterov": True}, 3.8 / 2.8),
}


@pytest.mark.parametrize(("options", "limit"), LIMITS.values(), ids=LIMITS.keys())
def test_the_stability_limit_is_where_descent_on_a_quadratic_turns(options, limit):
    assert stability_limit(options) == pytest.approx(limit)
    for factor, converges in ((0.98, True), (1.02, False)):
        weight = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=factor * limit, **options)
        for _ in range(2000):
            optimizer.zero_grad()
            (weight.square() / 2).sum().backward()
            optimizer.step()
        assert (abs(weight.item()) < 1) == converges, factor
