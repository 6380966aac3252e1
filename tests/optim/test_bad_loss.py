"""A bad loss, or none, gets an error that names the way out, and changes nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.optim.bad_input import BOTH, INSTEAD, TRAINED, WARMUP, X, always_due, loss_of, network
from tests.optim.watching import unchanged


def under_no_grad(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return loss_of(model)


def backpropagated(model: nn.Module) -> Tensor:
    loss = loss_of(model)
    loss.backward()
    return loss


# name: the loss, the error, what it says
BAD_LOSSES: dict[str, tuple[Callable[[nn.Module], object], type[Exception], str]] = {
    "not a scalar": (lambda m: m(X), ValueError, r"\(6, 1\).*loss\.mean\(\)"),
    "detached": (lambda m: loss_of(m).detach(), ValueError, r"not loss\.item\(\) or loss\.detach"),
    "under no_grad": (under_no_grad, ValueError, r"outside torch\.no_grad\(\)"),
    "a float": (lambda m: loss_of(m).item(), TypeError, "tensor, got float"),
    "complex": (lambda m: loss_of(m) * 1j, ValueError, r"\.real"),
    "of another model": (lambda m: loss_of(network()), ValueError, "another model"),
    "backpropagated": (backpropagated, RuntimeError, r"before loss\.backward\(\).*second time"),
}


@BOTH
@WARMUP
@TRAINED
@pytest.mark.parametrize("name", BAD_LOSSES)
def test_a_bad_loss_is_refused(name, kind, warmup, steps):
    make, error, words = BAD_LOSSES[name]
    model = network()
    optimizer = always_due(model, steps=steps, warmup=warmup, kind=kind)
    loss = make(model)
    with unchanged(optimizer), pytest.raises(error, match=words):
        optimizer.probe(loss)
    with unchanged(optimizer), pytest.raises(error, match=words):
        optimizer.calibrate([loss])


def test_no_trainable_parameter_is_refused():
    model = network()
    optimizer = always_due(model, steps=1)
    model.requires_grad_(False)
    loss = torch.ones((), requires_grad=True) * 2
    with unchanged(optimizer), pytest.raises(ValueError, match="requires a gradient"):
        optimizer.calibrate([loss])


@BOTH
def test_a_step_before_any_probe_is_refused(kind):
    model = network()
    optimizer = kind(model.parameters())
    loss_of(model).backward()
    words = rf"(?s)optimizer\.probe\(loss\) before loss\.backward\(\).*{INSTEAD}"
    with unchanged(optimizer), pytest.raises(RuntimeError, match=words):
        optimizer.step()


@TRAINED
def test_calibrating_on_nothing_is_refused(steps):
    optimizer = always_due(network(), steps=steps)
    with unchanged(optimizer), pytest.raises(ValueError, match="iterable of live losses"):
        optimizer.calibrate([])


@pytest.mark.parametrize("weighed", [False, True])
def test_a_loss_that_was_backpropagated_is_told_so_only_where_it_is_measured(weighed):
    model = network()
    optimizer = always_due(model, steps=0)
    for due in (True, False):
        loss = loss_of(model) * torch.tensor(0.5) if weighed else loss_of(model)
        loss.backward()
        if due:
            with pytest.raises(RuntimeError, match="already backpropagated"):
                optimizer.probe(loss)
            optimizer.zero_grad()
            fresh = loss_of(model)
            optimizer.probe(fresh)
            fresh.backward()
            optimizer.step()
            for group in optimizer.param_groups:
                group["probe_every"] = 100
        else:
            assert not optimizer.probe(loss)
