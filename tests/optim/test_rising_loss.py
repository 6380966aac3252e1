"""A run that has diverged says so, though its updates are limited, and one that trains does not."""

import warnings
from copy import deepcopy

import pytest
import torch
from torch import nn

from equilibrate import ESGD
from tests.optim.loops import train, train_by_closure

WAYS = {"probe": train, "closure": train_by_closure}


def _problem(near=False):
    """With `near`, the target is what the network itself says at first, but for 1e-6 of it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 1))
    data, target = torch.randn(64, 10), torch.randn(64, 1)
    if near:
        target = model(data).detach() + 1e-6 * target
    return model, lambda: (model(data) - target).square().mean()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("lr", [0.01, 3.0])
def test_an_exploded_loss_is_told_of_once(way, lr):
    model, loss = _problem()
    optimizer = ESGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True, probe_every=5)
    first = float(loss().detach())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        way(optimizer, loss, 60)
    told = [str(w.message) for w in caught if "diverged" in str(w.message)]
    exploded = float(loss().detach()) > 1000 * first
    assert exploded == (lr > 1)  # finite, and far too high
    assert len(told) == exploded
    assert all("lower learning rate" in text for text in told)


def _distilled(unlike):
    """A copy learns from what it was, on inputs that are augmented from the second step on."""
    teacher, _ = _problem()
    student, first = deepcopy(teacher), True
    optimizer = ESGD(student.parameters(), lr=0.01, momentum=0.9, probe_every=5)

    def loss():
        nonlocal first
        data = torch.randn(64, 10)
        shifted = data if first else data + unlike * torch.randn(64, 10)
        size, first = (1e-6 if first else 0.0), False
        target = teacher(data).detach() + size * torch.randn(64, 1)
        return (student(shifted) - target).square().mean()

    return optimizer, loss


@pytest.mark.parametrize("unlike", [0.01, 0.1, 0.5])
def test_a_loss_that_begins_near_zero_is_not_told_of(unlike):
    """By itself it says nothing of what a loss of this network is; its curvature does."""
    optimizer, loss = _distilled(unlike)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = train(optimizer, loss, 30)
    assert losses[-1] > 1e6 * losses[0]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_one_that_begins_near_zero_and_explodes_is_told_of(way):
    model, loss = _problem(near=True)
    optimizer = ESGD(model.parameters(), lr=0.01, momentum=0.9, probe_every=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        way(optimizer, loss, 10)
    for parameter in model.parameters():
        parameter.data *= 100
    with pytest.warns(UserWarning, match="diverged"):
        way(optimizer, loss, 10)


def test_a_parameter_that_is_not_finite_is_named_as_the_reason():
    model, loss = _problem()
    optimizer = ESGD(model.parameters(), lr=0.01, probe_every=1)
    train(optimizer, loss, 1)
    with torch.no_grad():
        model[0].bias[0] = float("nan")
    with pytest.warns(UserWarning, match="A parameter is infinite or not a number"):
        train(optimizer, loss, 1)


def test_terms_of_one_step_are_one_loss():
    """A small term probed first is no measure for the others, nor one spike a divergence."""
    weight = torch.ones(4, requires_grad=True)
    optimizer = ESGD([weight], lr=0.0, probe_every=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for spike in (1.0, 1.0, 1e5, 1.0):
            for size in (1e-4, 1.0, 1.0):
                loss = spike * size * weight.square().sum()
                optimizer.probe(loss)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
