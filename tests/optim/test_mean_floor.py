"""mean_floor: where the mean of D falls below what it was at first, steps do not grow."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from equilibrate.optim import growth
from tests.optim.hollow import (
    DOUBLE,
    OPTIONS,
    SHARE,
    Hollow,
    mean_of,
    ratio_of,
)
from tests.optim.laws import assert_same
from tests.optim.loops import train
from tests.optim.test_on_device import Forbidden
from tests.optim.ways import WAYS, over_ways, ways  # noqa: F401

MOMENTA = {
    "none": {},
    "heavy ball": {"momentum": 0.9, "growth_limit": None},
    "nesterov": {"momentum": 0.9, "nesterov": True, "growth_limit": None},
}
over_kinds = pytest.mark.parametrize("kind", [ESGD, JacobiSGD])


def by_hand(optimizer, parameters, buffers, first, momentum=0.0, nesterov=False):
    """One step from here by the formula, with the diagonal that the optimizer has found."""
    ends = []
    for p, g, d, buffer in zip(
        parameters["before"], parameters["gradients"], optimizer.diagonal(), buffers, strict=True
    ):
        b = min(1.0, float(mean_of(optimizer.diagonal()) / first))
        u = b * g / (d + SHARE * d.mean())
        buffer.mul_(momentum).add_(u)
        ends.append(p - OPTIONS["lr"] * (u + momentum * buffer if nesterov else buffer))
    return ends


@over_ways
@over_kinds
@pytest.mark.parametrize("momentum", MOMENTA)
def test_every_step_is_the_formula_by_hand(kind, momentum, way):
    hollow, given = Hollow(), MOMENTA[momentum]
    optimizer = kind(hollow.parameters, **OPTIONS | {"damping": SHARE} | given | WAYS[way])
    buffers = [torch.zeros_like(p) for p in hollow.parameters]
    first, brakes = None, []
    for _ in range(12):
        loss = hollow()
        optimizer.probe(loss)
        loss.backward()
        seen = {
            "before": [p.detach().clone() for p in hollow.parameters],
            "gradients": [p.grad.clone() for p in hollow.parameters],
        }
        optimizer.step()
        first = mean_of(optimizer.diagonal()) if first is None else first
        switches = {name: value for name, value in given.items() if name != "growth_limit"}
        expected = by_hand(optimizer, seen, buffers, first, **switches)
        torch.testing.assert_close(
            [p.detach() for p in hollow.parameters], expected, rtol=1e-11, atol=1e-13
        )
        brakes.append(float(mean_of(optimizer.diagonal()) / first))
        optimizer.zero_grad()
    assert brakes[0] == 1
    assert min(brakes) < 0.8  # else there was nothing to brake


@over_ways
def test_the_limit_of_growth_measures_what_the_brake_leaves(way):
    """The loss jumps between two probes, when curvature has fallen: both factors are at work."""
    hollow = Hollow(jumps={9: 50.0})
    options = {"momentum": 0.9, "growth_limit": 1.5, "damping": SHARE}
    optimizer = ESGD(hollow.parameters, **OPTIONS | options | WAYS[way])
    buffers = [torch.zeros_like(p) for p in hollow.parameters]
    first, average, count, seen = None, 0.0, 0, []
    for _ in range(12):
        loss = hollow()
        optimizer.probe(loss)
        loss.backward()
        starts = [p.detach().clone() for p in hollow.parameters]
        gradients = [p.grad.clone() for p in hollow.parameters]
        optimizer.step()
        optimizer.zero_grad()
        diagonals = optimizer.diagonal()
        first = mean_of(diagonals) if first is None else first
        b = min(1.0, float(mean_of(diagonals) / first))
        pairs = zip(gradients, diagonals, strict=True)
        updates = [b * g / (d + SHARE * d.mean()) for g, d in pairs]
        size = float(torch.cat(updates).square().mean().sqrt())
        f, average, count = growth.limit(size, average, count, 1.5)
        seen.append((b, f))
        for p, start, u, buffer in zip(hollow.parameters, starts, updates, buffers, strict=True):
            buffer.mul_(0.9).add_(f * u)
            expected = start - OPTIONS["lr"] * buffer
            torch.testing.assert_close(p.detach(), expected, rtol=1e-11, atol=1e-13)
    assert any(b < 0.9 and f < 0.5 for b, f in seen)


@over_ways
@over_kinds
def test_the_unit_of_the_loss_changes_nothing(kind, way):
    ends = []
    for factor in (1.0, 1024.0):  # a power of two is exact
        hollow = Hollow(factor)
        hollow.train(12, kind, **WAYS[way])
        ends.append([p.detach() for p in hollow.parameters])
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-12, atol=0)


@over_ways
@pytest.mark.parametrize("momentum", MOMENTA)
def test_where_curvature_rises_it_changes_nothing(momentum, way):
    ends = []
    for floor in (True, False):
        hollow = Hollow(coupling=0.0)  # then D is exact, whatever the vectors are
        climb = {"maximize": True, "lr": 0.003, "mean_floor": floor}
        optimizer = hollow.train(12, **climb, **MOMENTA[momentum], **WAYS[way])
        ends.append([p.detach() for p in hollow.parameters])
    assert_same(*ends)
    assert ratio_of(optimizer) > 1.01


@over_ways
def test_on_a_quadratic_it_changes_nothing(way):
    """D is the curvature there, to the rounding of its average."""
    ends = []
    for floor in (True, False):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=DOUBLE))
        scales = torch.tensor([1.0, 4.0, 0.5], dtype=DOUBLE)
        optimizer = ESGD([weight], **OPTIONS | {"mean_floor": floor} | WAYS[way])
        train(optimizer, lambda w=weight, s=scales: (s * w**2).sum(), 12)
        ends.append(weight.detach())
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-13, atol=0)


@over_ways
def test_with_absolute_damping_the_step_is_that_of_the_first_curvature(way):
    """The curvature vanishes, the damping stays: a plain step of g / (m0 + damping)."""
    weight = nn.Parameter(torch.tensor([2.0, 2.0], dtype=DOUBLE))
    options = {"damping": 5.0, "damping_kind": "absolute", "decay": 0.01}
    optimizer = ESGD([weight], **OPTIONS | options | WAYS[way])
    train(optimizer, lambda: (weight**4).sum(), 1)  # D is 12 * 4
    with torch.no_grad():
        weight.fill_(1e-4)
    train(optimizer, lambda: (weight**4).sum() + weight.sum(), 3)
    before = weight.detach().clone()
    train(optimizer, lambda: (weight**4).sum() + weight.sum(), 1)
    moved = (before - weight.detach()) / OPTIONS["lr"]
    torch.testing.assert_close(moved, torch.full_like(moved, 1 / 53), rtol=1e-2, atol=0)


def test_on_a_quadratic_that_is_not_diagonal_the_noise_of_probes_is_no_fall():
    """Of 20 vectors: the mean over 60 rows of their norms is right to some 2%."""
    torch.manual_seed(0)
    hessian = torch.randn(60, 60, dtype=DOUBLE)
    hessian = hessian @ hessian.T
    weight = nn.Parameter(torch.randn(60, dtype=DOUBLE))
    optimizer = ESGD([weight], lr=1e-9, mean_floor=True, probe_every=1)
    ratios = []
    for _ in range(200):
        train(optimizer, lambda: weight @ hessian @ weight / 2, 1)
        ratios.append(ratio_of(optimizer))
    assert min(ratios) > 0.9


def test_no_step_waits_for_the_device():
    hollow = Hollow()
    optimizer = hollow.train(4, momentum=0.9, **WAYS["capturable"])
    hollow().backward()
    with Forbidden():
        optimizer.step()


def test_without_curvature_nothing_moves_and_nothing_is_nan():
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = ESGD([weight], lr=0.1, mean_floor=True)
    with pytest.warns(UserWarning, match="nothing moves"):
        train(optimizer, lambda: weight.sum(), 2)
    assert weight.tolist() == [1.0, 2.0]
