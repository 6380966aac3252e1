"""A closure that clips at displaced points is refused, and none that does not."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD
from tests.cases import DOUBLE, NETWORK
from tests.optim.closures import closure_of, regression


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
