"""A closure that clips at displaced points is refused, and none that does not."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD
from tests.cases import DOUBLE, NETWORK
from tests.optim.closures import closure_of, regression


def _clipping_closure(optimizer, parameters, loss, when, most=0.01):
    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        if when == "always" or not optimizer.measuring:
            torch.nn.utils.clip_grad_norm_(parameters, most)
        return value

    return closure


def test_clipping_at_displaced_points_is_refused_and_loses_nothing():
    model, loss = regression(nn.Tanh)
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
            closure_of(optimizer, loss)
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
    optimizer.step(closure_of(optimizer, lambda: (weight[0] ** 2 - weight[1] ** 2) / 2))
    expected = [torch.ones(2, dtype=dtype)]
    torch.testing.assert_close(optimizer.diagonal(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("size", "curvature"), [(500, 1e-1), (500, 1e-3), (500, 1e-5), (100_000, 1e-2)]
)
def test_a_long_gradient_on_weak_curvature_is_not_taken_for_a_clipped_one(size, curvature):
    """The lengths agree to single precision; of 100,000 elements g and H v are near orthogonal."""
    for seed in range(10):
        torch.manual_seed(seed)
        slope, scale, weight = torch.randn(size), curvature * torch.rand(size), torch.randn(size)
        weight.requires_grad_()
        optimizer = ESGD([weight], lr=0.0, seed=seed)

        def loss(weight=weight, slope=slope, scale=scale):
            return (slope * weight + scale * weight**2 / 2).sum()

        optimizer.step(closure_of(optimizer, loss))
        assert optimizer.state[weight]["probes"] == 20


# Slope and weak curvature: r = apart / |g| is known. A length's rounding grows with the elements;
# a half precision's is told only where r is some 0.6: rounding is 2.5 eps of bfloat16.
CLIPPED = {
    "float64, few": (DOUBLE, 10, 1.0),
    "float64, weak curvature": (DOUBLE, 1000, 0.1),
    "float32, few": (torch.float32, 10, 1.0),
    "float32, weak curvature": (torch.float32, 1000, 0.1),
    "float32, many": (torch.float32, 100_000, 0.3),
    "float32, very many": (torch.float32, 3_000_000, 1.0),
    "float16": (torch.float16, 1000, 3.0),
    "bfloat16": (torch.bfloat16, 1000, 6.0),
}


def _sloped(dtype, size, curvature):
    torch.manual_seed(0)
    slope, scale = torch.randn(size, dtype=dtype), curvature * torch.rand(size, dtype=dtype)
    weight = torch.randn(size, dtype=dtype).requires_grad_()
    optimizer = ESGD([weight], lr=0.0, warmup_probes=1)
    return optimizer, weight, lambda: (slope * weight + scale * weight**2 / 2).sum()


@pytest.mark.parametrize("name", CLIPPED)
@pytest.mark.parametrize("most", [0.01, 1.0])
def test_clipping_is_seen_in_every_dtype_and_size(name, most):
    optimizer, weight, loss = _sloped(*CLIPPED[name])
    closure = _clipping_closure(optimizer, [weight], loss, "always", most)
    with pytest.raises(RuntimeError, match="clips its gradients"):
        optimizer.step(closure)


@pytest.mark.parametrize("name", CLIPPED)
def test_the_same_without_clipping_trains(name):
    optimizer, weight, loss = _sloped(*CLIPPED[name])
    optimizer.step(closure_of(optimizer, loss))
    assert optimizer.state[weight]["probes"] == 1


def test_too_weak_a_curvature_tells_nothing_of_clipping():
    """At a tenth of the parameters' size, the farthest asked for, r is 1.2e-3 and less."""
    optimizer, weight, loss = _sloped(torch.float32, 1000, 0.01)
    optimizer.step(_clipping_closure(optimizer, [weight], loss, "always"))
    assert optimizer.state[weight]["probes"] == 1


@pytest.mark.parametrize("size", [1000, 1_000_000])
def test_lengths_that_are_equal_by_chance_are_not_taken_for_clipped_ones(size):
    """Of a million sines any two gradients have nearly one length, at every step."""
    for seed in range(3):
        torch.manual_seed(seed)
        turns, point = torch.empty(size).uniform_(1000, 2500), 3 * torch.rand(size) - 1.5
        point.requires_grad_()
        optimizer = ESGD([point], lr=0.0, warmup_probes=1, seed=seed)

        def loss(point=point, turns=turns):
            return torch.cos(turns * point).sum()

        optimizer.step(closure_of(optimizer, loss))
        assert optimizer.state[point]["probes"] == 1


@pytest.mark.parametrize("here", [0.0, 1e-310, 1e-30, 1e-6, 1e-3])
def test_gradients_around_a_minimum_are_not_taken_for_clipped_ones(here):
    """Ahead and behind they are of one length, on both sides; at the point there is hardly any."""
    weight = (1 + torch.full((8,), here, dtype=DOUBLE)).requires_grad_()
    optimizer = ESGD([weight], lr=1e-3, warmup_probes=1)
    optimizer.step(closure_of(optimizer, lambda: (weight - 1).square().sum() / 2))
    assert optimizer.state[weight]["probes"] == 1


@pytest.mark.parametrize("name", CLIPPED)
def test_clipping_that_begins_later_is_seen_at_its_second_probe_at_the_latest(name):
    optimizer, weight, loss = _sloped(*CLIPPED[name])
    for group in optimizer.param_groups:
        group["probe_every"] = 1
    optimizer.step(closure_of(optimizer, loss))
    clipping = _clipping_closure(optimizer, [weight], loss, "always")
    with pytest.raises(RuntimeError, match="clips its gradients"):
        [optimizer.step(clipping) for _ in range(2)]


def test_lengths_that_change_from_probe_to_probe_are_not_looked_at_farther_out():
    """Near one another at every probe, as those of long gradients are: three runs all the same."""
    torch.manual_seed(0)
    slope, scale = torch.randn(100_000), 0.1 * torch.rand(100_000)
    weight = torch.randn(100_000, requires_grad=True)
    optimizer = ESGD([weight], lr=0.0, probe_every=1)
    runs = []

    def loss():
        return (1 + 0.1 * steps) * (slope * weight + scale * weight**2 / 2).sum()

    for steps in range(10):
        optimizer.step(closure_of(optimizer, loss, counter=runs))
        if steps:
            assert len(runs) == 3
        runs.clear()


AT_THE_POINT = {
    "each layer clipped": lambda ps: [nn.utils.clip_grad_norm_([p], 1e-3) for p in ps],
    "clipped by value": lambda ps: nn.utils.clip_grad_value_(ps, 1e-3),
    "weights decayed": lambda ps: [p.grad.add_(p.detach(), alpha=10.0) for p in ps],
    "all of one length": lambda ps: [p.grad.mul_(9 / p.grad.norm()) for p in ps],
}


@pytest.mark.parametrize("change", AT_THE_POINT.values(), ids=AT_THE_POINT)
def test_what_is_done_to_gradients_unless_measuring_leaves_the_curvature(change):
    diagonals = []
    for changed in (False, True):
        parameters, loss = NETWORK.parameters_and_loss()
        optimizer = ESGD(parameters, lr=0.0)

        def closure(optimizer=optimizer, loss=loss, own=parameters, changed=changed):
            optimizer.zero_grad()
            value = loss()
            value.backward()
            if changed and not optimizer.measuring:
                change(own)
            return value

        optimizer.step(closure)
        diagonals.append(optimizer.diagonal())
    torch.testing.assert_close(*diagonals, rtol=0, atol=0)
