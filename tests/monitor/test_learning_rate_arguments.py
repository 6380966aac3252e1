"""What `suggest_learning_rate` takes, and what it says of anything else."""

import math

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from equilibrate import ESGD
from equilibrate.monitor import suggest_learning_rate
from tests.monitor.test_learning_rate import network

X = torch.ones(3, 4, dtype=torch.float64)


def everything(model):
    return model.parameters()


def _used(model):
    loss = model(X).square().mean()
    loss.backward()
    return loss


def _attention(model):
    """In a checkpoint, where it has no second derivative on a CPU either."""
    q = model(X)[None, None]
    attend = torch.nn.functional.scaled_dot_product_attention
    return checkpoint(attend, q, q, q, use_reentrant=False).square().mean()


CALL = r"suggest_learning_rate\(loss, model\.parameters\(\)\)"

# name: the loss, the parameters, the error, what it says
BAD_INPUT = {
    "not a scalar": (lambda m: m(X), everything, ValueError, r"loss\.mean\(\)"),
    "a float": (lambda m: m(X).mean().item(), everything, TypeError, "tensor, got float"),
    "detached": (lambda m: m(X).mean().detach(), everything, ValueError, "detached"),
    "of another model": (lambda m: network()[1](), everything, ValueError, "another model"),
    "no parameters": (lambda m: m(X).mean(), lambda m: [], ValueError, "requires a gradient"),
    "not a number": (
        lambda m: m(X).mean() * math.nan,
        everything,
        ValueError,
        "has diverged. Lower the learn",
    ),
    "used up": (lambda m: _used(m), everything, RuntimeError, r"\) before loss\.backward\(\)"),
    "the model": (lambda m: m(X).mean(), lambda m: m, TypeError, CALL),
    "one layer": (lambda m: m(X).mean(), lambda m: m[0], TypeError, CALL),
    "one tensor": (lambda m: m(X).mean(), lambda m: m[0].weight, TypeError, CALL),
    "an optimizer": (lambda m: m(X).mean(), lambda m: ESGD(m.parameters()), TypeError, CALL),
    "the other order": (lambda m: m, lambda m: m(X).mean(), TypeError, CALL),
    "attention": (
        lambda m: _attention(m),
        everything,
        RuntimeError,
        "SDPBackend.MATH",
    ),
    "all frozen": (lambda m: m(X).mean(), lambda m: [X], ValueError, "requires a gradient"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_a_bad_loss_or_no_parameter_is_refused(name):
    make, chosen, error, words = BAD_INPUT[name]
    model, _ = network()
    with pytest.raises(error, match=words) as raised:
        suggest_learning_rate(make(model), chosen(model))
    assert "optimizer.probe" not in str(raised.value)


OUT_OF_RANGE = {
    "momentum": [1.0, 2, -0.5, math.nan, "a"],
    "damping": [-1.0, math.nan, math.inf],
    "steps": [0, 1, 4, -1, 5.5, "a"],
    "probes": [1, 0, 2.5, "a"],
    "seed": ["a", 2**63],
}
PAIRS = [(name, value) for name, values in OUT_OF_RANGE.items() for value in values]


@pytest.mark.parametrize(("name", "value"), PAIRS)
def test_an_argument_out_of_range_is_refused_with_its_value(name, value):
    model, loss = network()
    with pytest.raises(ValueError, match=rf"{name}.*{value}"):
        suggest_learning_rate(loss(), model.parameters(), **{name: value})


# What ESGD takes as its parameters.
GIVEN = {
    "an iterator": lambda model: model.parameters(),
    "names": lambda model: model.named_parameters(),
    "groups": lambda model: [{"params": layer.parameters()} for layer in (model[0], model[2])],
}


@pytest.mark.parametrize("given", GIVEN)
def test_parameters_are_given_in_every_way_that_esgd_takes(given):
    model, loss = network()
    found = suggest_learning_rate(loss(), GIVEN[given](model))
    assert found == suggest_learning_rate(loss(), list(model.parameters()))
