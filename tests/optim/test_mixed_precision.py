"""GradScaler and autocast: what is scaled, what is skipped, what does not underflow."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD
from tests.optim.loops import train


def _problem(scale: float = 1.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 3))
    data, target = torch.randn(32, 10), torch.randn(32, 3)
    return model, lambda: (model(data) - target).square().mean() * scale


def _scaled_loop(optimizer, loss, scaler, steps, autocast=True):
    for _ in range(steps):
        with torch.autocast("cpu", torch.float16, enabled=autocast):
            value = loss().float()
        optimizer.probe(value)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@pytest.mark.parametrize("unscale_first", [False, True])
def test_the_scaler_leaves_the_path_as_it_is(unscale_first):
    """Powers of two are exact: with and without GradScaler in float32, the same parameters."""
    paths = []
    for use_scaler in (False, True):
        model, loss = _problem()
        optimizer = ESGD(model.parameters(), lr=0.05, probe_every=3)
        scaler = torch.amp.GradScaler("cpu", enabled=use_scaler)
        for _ in range(12):
            value = loss()
            optimizer.probe(value)
            scaler.scale(value).backward()
            if unscale_first:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        paths.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(paths[0], paths[1], rtol=1e-6, atol=1e-7)


def test_float16_products_do_not_underflow():
    """The loss times 1e-3 in real float16: the diagonal equals float32's within float16's error."""
    half, loss = _problem(1e-3)
    single, reference = _problem(1e-3)
    optimizer = ESGD(half.parameters(), lr=0.0, warmup_probes=20)
    exact = ESGD(single.parameters(), lr=0.0, warmup_probes=20)
    _scaled_loop(optimizer, loss, torch.amp.GradScaler("cpu", init_scale=1024.0), 1)
    train(exact, reference, 1)
    for found, expected in zip(optimizer.diagonal(), exact.diagonal(), strict=True):
        error = (found - expected).norm() / expected.norm()
        assert error < 30 * torch.finfo(torch.float16).eps  # a product passes some ten operations


def test_an_overflow_step_changes_nothing_and_drops_its_product():
    disturbed, quiet = _problem(), _problem()
    paths = []
    for (model, loss), overflow in ((disturbed, True), (quiet, False)):
        optimizer = ESGD(model.parameters(), lr=0.05, probe_every=2, warmup_probes=1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        _scaled_loop(optimizer, loss, scaler, 4, autocast=False)
        if overflow:
            before = [d.clone() for d in optimizer.diagonal()]
            value = loss() * 3
            assert optimizer.probe(value)
            scaler.scale(value).backward()
            next(model.parameters()).grad[0, 0] = float("inf")
            scaler.step(optimizer)
            scaler.update(2.0)
            optimizer.zero_grad()
            assert not optimizer._pending
            torch.testing.assert_close(optimizer.diagonal(), before, rtol=0, atol=0)
        _scaled_loop(optimizer, loss, scaler, 4, autocast=False)
        paths.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(paths[0], paths[1], rtol=0, atol=0)


def test_bfloat16_autocast_trains():
    model, loss = _problem()
    optimizer = ESGD(model.parameters(), lr=0.05)
    values = []
    for _ in range(60):
        with torch.autocast("cpu", torch.bfloat16):
            value = loss().float()
        optimizer.probe(value)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        values.append(float(value.detach()))
    assert values[-1] < 0.7 * values[0]
    assert all(d.dtype == torch.float32 for d in optimizer.diagonal())


HALF_ERROR = 30 * torch.finfo(torch.float16).eps  # some ten operations, each rounded a few times


def _moved(model, loss, optimizer, scaler, steps, autocast=True):
    start = [p.detach().clone() for p in model.parameters()]
    _scaled_loop(optimizer, loss, scaler, steps, autocast)
    return torch.cat(
        [(p.detach() - s).flatten() for p, s in zip(model.parameters(), start, strict=True)]
    )


@pytest.mark.parametrize("options", [{}, {"momentum": 0.5}], ids=["plain", "momentum"])
def test_float16_with_a_scaler_takes_the_path_of_float32(options):
    """Thirty steps on the loss times 1e-3, in real float16: as far, and to the same place."""
    paths = []
    for autocast in (True, False):
        model, loss = _problem(1e-3)
        optimizer = ESGD(model.parameters(), lr=0.02, probe_every=5, **options)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
        paths.append(_moved(model, loss, optimizer, scaler, 30, autocast))
        assert scaler.get_scale() == 2.0**12  # no step was skipped
    half, single = paths
    assert (half - single).norm() < HALF_ERROR * single.norm()


@pytest.mark.parametrize("at", [4, 5], ids=["a probing step", "an ordinary step"])
def test_a_real_overflow_changes_nothing_that_comes_after(at):
    """A scale of 2^40 makes float16 gradients infinite; the skipped step leaves no trace."""
    paths = []
    for overflow in (True, False):
        model, loss = _problem(1e-3)
        optimizer = ESGD(model.parameters(), lr=0.02, probe_every=4)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
        _scaled_loop(optimizer, loss, scaler, at)
        if overflow:
            before = [p.detach().clone() for p in model.parameters()], optimizer.diagonal()
            scaler.update(2.0**40)
            _scaled_loop(optimizer, loss, scaler, 1)
            assert scaler.get_scale() == 2.0**39  # the scaler saw it
            after = [p.detach().clone() for p in model.parameters()], optimizer.diagonal()
            torch.testing.assert_close(after, before, rtol=0, atol=0)
            scaler.update(2.0**12)
        _scaled_loop(optimizer, loss, scaler, 9)
        paths.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(*paths, rtol=0, atol=0)


def test_bfloat16_parameters_keep_a_float32_diagonal_of_their_curvature():
    half, single = _problem()[0].to(torch.bfloat16), _problem()[0]
    x, y = torch.randn(32, 10), torch.randn(32, 3)
    found = []
    for model in (half, single):
        optimizer = ESGD(model.parameters(), lr=0.0)
        dtype = next(model.parameters()).dtype
        train(
            optimizer,
            lambda model=model, dtype=dtype: (model(x.to(dtype)).float() - y).square().mean(),
            1,
        )
        assert all(d.dtype == torch.float32 for d in optimizer.diagonal())
        found.append(torch.cat([d.flatten() for d in optimizer.diagonal()]))
    assert (found[0] - found[1]).norm() < 30 * torch.finfo(torch.bfloat16).eps * found[1].norm()


@pytest.mark.parametrize(
    ("how", "message"),
    [("by name", "Closure use is not currently supported"), ("by place", "without a closure")],
)
def test_a_closure_under_a_scaler_is_refused(how, message):
    """So sharded parameters, which need a closure, train in bfloat16 or float32.

    By name torch refuses it; by place it slips through torch's check.
    """
    model, loss = _problem()
    optimizer = ESGD(model.parameters())
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss()).backward()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(RuntimeError, match=message):
        scaler.step(optimizer, closure=loss) if how == "by name" else scaler.step(optimizer, loss)
    torch.testing.assert_close([p.detach() for p in model.parameters()], before, rtol=0, atol=0)


def test_a_probe_of_the_scaled_loss_is_told_to_take_the_loss_itself():
    """2^24 times the loss overflows float16, at whatever scale a probe takes."""
    model, loss = _problem()
    optimizer = ESGD(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    with torch.autocast("cpu", torch.float16):
        value = scaler.scale(loss().float())
    with pytest.warns(UserWarning, match="not finite"):
        optimizer.probe(value)
    value.backward()
    with pytest.raises(RuntimeError, match=r"probe the loss itself, not scaler\.scale\(loss\)"):
        optimizer.step()


SCALED = {"as it is": False, "after unscale_": True}


AROUND = {
    "alone": lambda scaled: scaled,
    "over parts": lambda scaled: scaled / 4,
    "with a number added": lambda scaled: 3 * scaled.sum() + 1.0,
    "with itself": lambda scaled: -scaled - scaled,
    "in a stack": lambda scaled: torch.stack([scaled, scaled / 2]).mean(),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("unscale_first", SCALED.values(), ids=SCALED)
@pytest.mark.parametrize("backward", [False, True])
def test_a_scaled_loss_that_was_probed_is_refused_and_forgotten(unscale_first, backward, around):
    """Nothing overflows here: its diagonal would be 65,536 times too large."""
    model, loss = _problem()
    optimizer, scaler = ESGD(model.parameters(), lr=0.05), torch.amp.GradScaler("cpu")
    before = [p.clone() for p in model.parameters()]
    scaled = around(scaler.scale(loss()))
    optimizer.probe(scaled, backward=backward)
    if not backward:
        scaled.backward()
    if unscale_first:
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"65536 times too large.*Probe the loss itself"):
        scaler.step(optimizer)
    assert not optimizer._pending
    assert all(not state or not state["probes"] for state in optimizer.state.values())
    assert all(map(torch.equal, before, model.parameters()))
    scaler.update()
    optimizer.zero_grad()
    value = loss()
    optimizer.probe(value)
    scaler.scale(value).backward()
    scaler.step(optimizer)
    assert not all(map(torch.equal, before, model.parameters()))


class OwnScaler(torch.amp.GradScaler):
    """As those of trainers: `step` does something before."""

    def step(self, optimizer, *args, **kwargs):
        return super().step(optimizer, *args, **kwargs)


SCALERS = [torch.amp.GradScaler, OwnScaler]


@pytest.mark.parametrize("kind", SCALERS)
@pytest.mark.parametrize("factor", [0.5, 2.0, 128.0, 1024.0, 2.0**20])
def test_a_loss_that_is_weighed_is_probed_after_unscale_too(factor, kind):
    """The scale is not handed over there: a weight that is another power of two is none."""
    model, loss = _problem()
    optimizer, scaler = ESGD(model.parameters(), lr=0.05 / factor), kind("cpu")
    value = loss() * torch.tensor(factor)
    optimizer.probe(value)
    scaler.scale(value).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert all(state["probes"] == 20 for state in optimizer.state.values())


@pytest.mark.parametrize("kind", SCALERS)
@pytest.mark.parametrize("scale", [2.0, 1000.0, 2.0**16])
def test_any_scale_is_known_after_unscale_too(scale, kind):
    """Also one of no power of two, and of a loss that has a weight besides."""
    model, loss = _problem()
    optimizer, scaler = ESGD(model.parameters()), kind("cpu", init_scale=scale)
    value = scaler.scale(loss() * torch.tensor(1024.0))
    optimizer.probe(value)
    value.backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=f"would be {scale:g} times too large"):
        scaler.step(optimizer)


@pytest.mark.parametrize("as_number", [False, True])
@pytest.mark.parametrize("unscale_first", SCALED.values(), ids=SCALED)
def test_a_weight_that_equals_the_scale_may_be_given_as_a_number(unscale_first, as_number):
    """From the first probe on the two cannot be told apart: the error has a way out."""
    model, loss = _problem()
    optimizer, scaler = ESGD(model.parameters(), lr=1e-6), torch.amp.GradScaler("cpu")
    value = loss() * (65536.0 if as_number else torch.tensor(65536.0))
    optimizer.probe(value)
    scaler.scale(value).backward()
    if unscale_first:
        scaler.unscale_(optimizer)
    if as_number:
        scaler.step(optimizer)
        assert all(state["probes"] == 20 for state in optimizer.state.values())
    else:
        with pytest.raises(RuntimeError, match="multiply by the number 65536 in place of a tensor"):
            scaler.step(optimizer)


def test_a_scaler_that_is_not_torchs_keeps_its_scale_to_itself():
    """What looks like a scale is refused there, with the same way out."""
    model, loss = _problem()
    for factor in (1024.0, 1000.0):
        optimizer = ESGD(model.parameters(), lr=1e-6)
        value = loss() * torch.tensor(factor)
        optimizer.probe(value, backward=True)
        optimizer.grad_scale, optimizer.found_inf = None, torch.zeros(())
        if factor == 1024.0:
            with pytest.raises(RuntimeError, match="multiply by the number 1024 in place of"):
                optimizer.step()
        else:
            optimizer.step()
            assert all(state["probes"] == 20 for state in optimizer.state.values())


def test_a_loss_times_the_size_of_its_batch_is_taken_for_no_scale():
    """The last batch is as large as the scale."""
    model, loss = _problem()
    optimizer = ESGD(model.parameters(), lr=1e-4, probe_every=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    for cases in (500.0, 512.0):
        value = loss() * torch.tensor(cases)
        optimizer.probe(value)
        scaler.scale(value).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert all(state["probes"] == 21 for state in optimizer.state.values())


@pytest.mark.parametrize("factor", [2.0, 3.0, 65536.0])
def test_a_loss_times_a_tensor_trains_without_a_scaler(factor):
    """And under one whose scale is another: the product is the user's own loss."""
    for scaler in (None, torch.amp.GradScaler("cpu", init_scale=8.0)):
        model, loss = _problem()
        optimizer = ESGD(model.parameters(), lr=0.05)
        before = [p.clone() for p in model.parameters()]
        value = loss() * torch.tensor(factor)
        optimizer.probe(value)
        if scaler is None:
            value.backward()
            optimizer.step()
        else:
            scaler.scale(value).backward()
            scaler.step(optimizer)
        assert not all(map(torch.equal, before, model.parameters()))


def test_a_weight_of_one_term_is_no_scale():
    """Also where it equals the scale, at the first step or in mid-training."""
    for weight, unscale in ((4.0, False), (256.0, True)):
        model, loss = _problem()
        optimizer = ESGD(model.parameters(), lr=1e-4, probe_every=1)
        scaler = torch.amp.GradScaler("cpu", init_scale=weight, growth_interval=1)
        for _ in range(3):
            penalty = sum(p.square().sum() for p in model.parameters())
            value = loss() + torch.tensor(weight) * penalty
            optimizer.probe(value)
            scaler.scale(value).backward()
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert all(state["probes"] == 22 for state in optimizer.state.values())
