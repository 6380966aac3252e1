"""step(closure): torch's standard closure, unchanged; measured by differences, leaving no trace."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD, frozen_statistics
from tests.cases import DOUBLE, NETWORK
from tests.optim.closures import closure_of
from tests.optim.loops import train


@pytest.mark.parametrize("zero", ["inside", "in place", "outside"])
def test_closures_that_zero_and_closures_that_do_not_measure_the_same(zero):
    parameters, loss = NETWORK.parameters_and_loss()
    probed = ESGD(parameters, lr=0.0, warmup_probes=1, probe_every=1)
    train(probed, loss, 3)
    optimizer = ESGD(parameters, lr=0.0, warmup_probes=1, probe_every=1)
    closure = closure_of(optimizer, loss, zero)
    for _ in range(3):  # between steps the zeroing ones leave their old gradients behind
        optimizer.step(closure)
        if zero == "outside":
            optimizer.zero_grad()
    torch.testing.assert_close(optimizer.diagonal(), probed.diagonal(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("optimizer_class", [ESGD, JacobiSGD])
def test_gradients_parameters_and_random_state_are_those_of_the_unperturbed_point(optimizer_class):
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2)).to(DOUBLE)
    data = torch.randn(6, 5, dtype=DOUBLE)
    parameters = list(model.parameters())
    optimizer = optimizer_class(parameters, lr=0.0, warmup_probes=3)
    torch.manual_seed(7)
    value = model(data).square().mean()
    expected = torch.autograd.grad(value, parameters)
    after = torch.get_rng_state()
    start = [p.detach().clone() for p in parameters]
    torch.manual_seed(7)
    found = optimizer.step(closure_of(optimizer, lambda: model(data).square().mean()))
    assert torch.equal(found, value)
    assert torch.equal(after, torch.get_rng_state())
    torch.testing.assert_close([p.grad for p in parameters], list(expected), rtol=0, atol=0)
    torch.testing.assert_close([p.detach() for p in parameters], start, rtol=0, atol=0)


def test_displaced_passes_draw_the_same_dropout_masks():
    """With other masks the difference would be of order 1/e: far from the product of this mask."""
    model = nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Dropout(0.5), nn.Linear(40, 2)).to(DOUBLE)
    data = torch.randn(6, 5, dtype=DOUBLE)
    optimizers = [
        ESGD(model.parameters(), lr=0.0, warmup_probes=1, probe_every=1) for _ in range(2)
    ]
    torch.manual_seed(3)
    train(optimizers[0], lambda: model(data).square().mean(), 1)
    torch.manual_seed(3)
    optimizers[1].step(closure_of(optimizers[1], lambda: model(data).square().mean()))
    by_probe, by_closure = (o.diagonal() for o in optimizers)
    torch.testing.assert_close(by_closure, by_probe, rtol=1e-6, atol=1e-8)


def test_ordinary_steps_run_the_closure_once():
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = ESGD(parameters, lr=1e-3, warmup_probes=1, probe_every=4)
    calls = []
    for _ in range(8):
        optimizer.step(closure_of(optimizer, loss, counter=calls))
    # The first probe also checks its step (two pairs) and that the closure repeats itself (one
    # more); after that a probing step, one in four, runs one pair.
    assert calls == [False] + [True] * 7 + [False] * 3 + [False, True, True] + [False] * 3


def test_a_probe_inside_the_closure_is_folded_instead():
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = ESGD(parameters, lr=1e-3, warmup_probes=1, probe_every=1)
    calls = []

    def closure():
        calls.append(optimizer.measuring)
        optimizer.zero_grad()
        value = loss()
        optimizer.probe(value)
        value.backward()
        return value

    for _ in range(3):
        optimizer.step(closure)
    assert calls == [False] * 3
    assert {optimizer.state[p]["probes"] for p in parameters} == {3}


def test_accumulation_onto_earlier_micro_batches_is_refused_and_loses_nothing():
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = ESGD(parameters, lr=1e-2)
    (2 * loss()).backward()
    earlier = [p.grad.clone() for p in parameters]
    start = [p.detach().clone() for p in parameters]
    with pytest.raises(RuntimeError, match=r"optimizer\.probe\(loss\)"):
        optimizer.step(closure_of(optimizer, loss, zero="never"))
    torch.testing.assert_close([p.detach() for p in parameters], start, rtol=0, atol=0)
    torch.testing.assert_close([p.grad for p in parameters], earlier, rtol=0, atol=0)
    assert optimizer.probe_due
    assert not optimizer.state


def test_a_closure_that_does_not_repeat_itself_is_refused_and_loses_nothing():
    parameters, _ = NETWORK.parameters_and_loss()
    optimizer = ESGD(parameters, lr=0.01)
    start = [p.detach().clone() for p in parameters]
    batches = iter(torch.randn(1000, 8, dtype=DOUBLE))

    def loss():
        return (parameters[0].sum(1) * next(batches) + parameters[1]).tanh().sum()

    with pytest.raises(RuntimeError, match="does not repeat itself"):
        optimizer.step(closure_of(optimizer, loss))
    torch.testing.assert_close([p.detach() for p in parameters], start, rtol=0, atol=0)
    assert all(p.grad is None for p in parameters)
    assert not optimizer.state


def test_running_statistics_see_one_pass_a_step():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)).to(DOUBLE)
    data = torch.randn(10, 4, dtype=DOUBLE)
    optimizer = ESGD(model.parameters(), lr=0.0, probe_every=1)
    plain = [b.clone() for b in _one_pass(model, data)]

    def loss():
        with frozen_statistics(model, optimizer):
            output = model(data)
        return output.square().mean()

    optimizer.step(closure_of(optimizer, loss))
    torch.testing.assert_close(list(model.buffers()), plain, rtol=0, atol=0)


def _one_pass(model, data):
    saved = {name: b.clone() for name, b in model.named_buffers()}
    model(data)
    after = [b.clone() for b in model.buffers()]
    for name, buffer in model.named_buffers():
        buffer.copy_(saved[name])
    return after
