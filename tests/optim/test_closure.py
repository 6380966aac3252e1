"""step(closure): torch's standard closure, unchanged; measured by differences, leaving no trace."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD, frozen_statistics
from equilibrate.curvature.differences import relative_step
from tests.cases import DOUBLE, NETWORK
from tests.optim.loops import train


def _closure(optimizer, loss, zero="inside", counter=None):
    def closure():
        if counter is not None:
            counter.append(optimizer.measuring)
        if zero == "inside":
            optimizer.zero_grad()
        elif zero == "in place":
            optimizer.zero_grad(set_to_none=False)
        value = loss()
        value.backward()
        return value

    return closure


@pytest.mark.parametrize("zero", ["inside", "in place", "outside"])
def test_closures_that_zero_and_closures_that_do_not_measure_the_same(zero):
    parameters, loss = NETWORK.parameters_and_loss()
    probed = ESGD(parameters, lr=0.0, warmup_probes=1, probe_every=1)
    train(probed, loss, 3)
    optimizer = ESGD(parameters, lr=0.0, warmup_probes=1, probe_every=1)
    closure = _closure(optimizer, loss, zero)
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
    found = optimizer.step(_closure(optimizer, lambda: model(data).square().mean()))
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
    optimizers[1].step(_closure(optimizers[1], lambda: model(data).square().mean()))
    by_probe, by_closure = (o.diagonal() for o in optimizers)
    torch.testing.assert_close(by_closure, by_probe, rtol=1e-6, atol=1e-8)


def test_ordinary_steps_run_the_closure_once():
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = ESGD(parameters, lr=1e-3, warmup_probes=1, probe_every=4)
    calls = []
    for _ in range(8):
        optimizer.step(_closure(optimizer, loss, counter=calls))
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
        optimizer.step(_closure(optimizer, loss, zero="never"))
    torch.testing.assert_close([p.detach() for p in parameters], start, rtol=0, atol=0)
    torch.testing.assert_close([p.grad for p in parameters], earlier, rtol=0, atol=0)
    assert optimizer.probe_due
    assert not optimizer.state


def _regression(activation):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), activation(), nn.Linear(30, 4))
    data, target = torch.randn(64, 20), torch.randn(64, 4)
    return model, lambda: (model(data).float() - target).square().mean()


@pytest.mark.parametrize("activation", [nn.Tanh, nn.GELU, nn.Sigmoid])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_step_suits_the_precision_inside_autocast(activation, dtype):
    """Under autocast float32 parameters hide coarser arithmetic, in which a fine step is noise."""
    model, loss = _regression(activation)

    def under_autocast():
        with torch.autocast("cpu", torch.bfloat16 if dtype == torch.float32 else dtype,
                            enabled=dtype != torch.float32):  # fmt: skip
            return loss()

    exact = ESGD(model.parameters(), lr=0.0, warmup_probes=20)
    train(exact, loss, 1)
    optimizer = ESGD(model.parameters(), lr=0.0, warmup_probes=20)
    optimizer.step(_closure(optimizer, under_autocast))
    if dtype == torch.bfloat16 and activation is nn.Tanh:
        assert optimizer.param_groups[0]["difference_step"] > 0.1
    pairs = list(zip(optimizer.diagonal(), exact.diagonal(), strict=True))
    off = sum((a - b).square().sum() for a, b in pairs).sqrt()
    assert off < 0.2 * sum(b.square().sum() for _, b in pairs).sqrt()


def test_a_gradient_that_turns_fast_is_measured_with_a_finer_step():
    """At float32's own step and at coarser ones the sines turn by 5 to 12 and more: noise."""
    turns = torch.linspace(1000.0, 2500.0, 40)
    diagonals = []
    for by in ("probe", "closure"):
        point = torch.linspace(-1.5, 1.5, 40, requires_grad=True)
        optimizer = ESGD([point], lr=0.0, warmup_probes=1, probe_every=1)

        def loss(point=point):
            return torch.cos(turns * point).sum()

        train(optimizer, loss, 2) if by == "probe" else optimizer.step(_closure(optimizer, loss))
        diagonals.append(optimizer.diagonal()[0])
    step = optimizer.param_groups[0]["difference_step"]
    assert step == pytest.approx(relative_step(torch.float32) / 100)
    turned = step * 2500 * float(point.detach().square().mean().sqrt())
    rounded = 1.5 * 2500 * torch.finfo(torch.float32).eps / turned  # the sines' arguments
    torch.testing.assert_close(*diagonals, rtol=turned**2 / 6, atol=rounded * 2500**2)


def test_products_that_vanish_at_finer_steps_are_not_taken_for_the_curvature():
    """Computed in bfloat16 no parameter moves there, so that every product is zero."""
    turns = torch.linspace(1000.0, 2500.0, 40)
    point = torch.ones(40, requires_grad=True)
    optimizer = ESGD([point], lr=0.0)
    closure = _closure(optimizer, lambda: torch.cos(turns * point.bfloat16()).sum())
    with pytest.raises(RuntimeError, match="rounding noise"):
        optimizer.step(closure)


def test_kinks_are_told_of_and_training_goes_on():
    model, loss = _regression(nn.ReLU)
    optimizer = ESGD(model.parameters(), lr=0.01)
    closure = _closure(optimizer, loss)
    first = float(loss())
    with pytest.warns(UserWarning, match="ReLU"):
        optimizer.step(closure)
    for _ in range(40):
        last = float(optimizer.step(closure))
    assert last < first


def test_a_closure_that_does_not_repeat_itself_is_refused_and_loses_nothing():
    parameters, _ = NETWORK.parameters_and_loss()
    optimizer = ESGD(parameters, lr=0.01)
    start = [p.detach().clone() for p in parameters]
    batches = iter(torch.randn(1000, 8, dtype=DOUBLE))

    def loss():
        return (parameters[0].sum(1) * next(batches) + parameters[1]).tanh().sum()

    with pytest.raises(RuntimeError, match="does not repeat itself"):
        optimizer.step(_closure(optimizer, loss))
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

    optimizer.step(_closure(optimizer, loss))
    torch.testing.assert_close(list(model.buffers()), plain, rtol=0, atol=0)


def _one_pass(model, data):
    saved = {name: b.clone() for name, b in model.named_buffers()}
    model(data)
    after = [b.clone() for b in model.buffers()]
    for name, buffer in model.named_buffers():
        buffer.copy_(saved[name])
    return after


def _clipping_closure(optimizer, parameters, loss, when):
    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        if when == "always" or not optimizer.measuring:
            torch.nn.utils.clip_grad_norm_(parameters, 0.01)
        return value

    return closure


def test_clipping_at_displaced_points_is_refused_and_loses_nothing():
    model, loss = _regression(nn.Tanh)
    parameters = list(model.parameters())
    optimizer = ESGD(parameters, lr=1e-3)
    start = [p.detach().clone() for p in parameters]
    with pytest.raises(RuntimeError, match=r"if not optimizer\.measuring"):
        optimizer.step(_clipping_closure(optimizer, parameters, loss, "always"))
    torch.testing.assert_close([p.detach() for p in parameters], start, rtol=0, atol=0)
    assert not optimizer.state


def test_clipping_at_the_point_alone_shortens_the_step_and_leaves_the_curvature():
    ends = []
    for when in ("never", "at the point"):
        parameters, loss = NETWORK.parameters_and_loss()
        start = [p.detach().clone() for p in parameters]
        optimizer = ESGD(parameters, lr=1e-2, probe_every=2)
        closure = (
            _closure(optimizer, loss)
            if when == "never"
            else _clipping_closure(optimizer, parameters, loss, when)
        )
        optimizer.step(closure)
        moved = [p.detach() - s for p, s in zip(parameters, start, strict=True)]
        ends.append((moved, optimizer.diagonal()))
        for _ in range(6):  # with the last step's gradients left behind
            optimizer.step(closure)
    (free, diagonal), (clipped, same) = ends
    torch.testing.assert_close(same, diagonal, rtol=0, atol=0)
    ratio = clipped[0].norm() / free[0].norm()
    assert ratio < 0.5
    torch.testing.assert_close(clipped, [m * ratio for m in free], rtol=1e-9, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_a_gradient_orthogonal_to_the_product_is_not_taken_for_a_clipped_one(dtype):
    """On this saddle g is orthogonal to H v for half of all signs v: the lengths are equal."""
    weight = torch.ones(2, dtype=dtype, requires_grad=True)
    optimizer = ESGD([weight], lr=0.0, probe_every=1)
    optimizer.step(_closure(optimizer, lambda: (weight[0] ** 2 - weight[1] ** 2) / 2))
    expected = [torch.ones(2, dtype=dtype)]
    torch.testing.assert_close(optimizer.diagonal(), expected, rtol=1e-4, atol=0)
