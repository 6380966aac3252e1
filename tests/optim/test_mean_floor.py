"""mean_floor: where the mean of D falls below what it was at first, steps do not grow."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from equilibrate.optim import limiting
from equilibrate.rules import fused
from tests.optim.laws import assert_same
from tests.optim.loops import train, train_accumulated
from tests.optim.test_on_device import Forbidden

DOUBLE = torch.float64
STARTS = [[1.0, -2.0, 0.7], [0.3, 1.5]]
SHARE = 0.01  # damping, of the mean of a tensor's own diagonal
OPTIONS = {"lr": 0.05, "probe_every": 3, "warmup_probes": 4, "decay": 0.5, "mean_floor": True}
WAYS = {
    "reference": {"foreach": False},
    "foreach": {},
    "fused": {"fused": True},
    "capturable": {"capturable": True},
    "average on the device": {},
}
MOMENTA = {
    "none": {},
    "heavy ball": {"momentum": 0.9, "growth_limit": None},
    "nesterov": {"momentum": 0.9, "nesterov": True, "growth_limit": None},
}
over_ways = pytest.mark.parametrize("way", WAYS)
over_kinds = pytest.mark.parametrize("kind", [ESGD, JacobiSGD])


@pytest.fixture(autouse=True)
def _ways(request, monkeypatch):
    """Compile as for real, but run torch's own kernels; and keep the average as on a GPU."""
    monkeypatch.setattr(fused, "compiled", partial(fused.compiled, "aot_eager"))
    if "average on the device" in request.node.name:
        monkeypatch.setattr(limiting, "on_one_device", lambda parameters: True)
    yield
    torch._dynamo.reset()


class Hollow:
    """A quartic: curvature changes along the way, and every element has its own."""

    def __init__(self, factor=1.0, coupling=0.5):
        self.parameters = [nn.Parameter(torch.tensor(s, dtype=DOUBLE)) for s in STARTS]
        self.factor, self.coupling = factor, coupling

    def __call__(self):
        first, second = self.parameters
        bowl = sum((p**4).sum() for p in self.parameters)
        return self.factor * (bowl + self.coupling * first[0] ** 2 * second[1] ** 2)

    def train(self, steps, kind=ESGD, **options):
        optimizer = kind(self.parameters, **OPTIONS | {"damping": SHARE} | options)
        train(optimizer, self, steps)
        return optimizer


def mean_of(diagonals):
    return torch.cat([d.flatten() for d in diagonals]).mean()


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
def test_with_the_limit_of_growth_every_way_is_the_reference(way):
    ends = []
    climb = {"momentum": 0.9, "maximize": True, "lr": 0.003}  # upwards, updates grow
    for options in (WAYS["reference"], WAYS[way]):
        hollow = Hollow()
        hollow.train(30, growth_limit=1.05, **climb, **options)
        ends.append([p.detach() for p in hollow.parameters])
    free = Hollow()
    free.train(30, growth_limit=None, **climb)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-11, atol=1e-13)
    assert not torch.allclose(ends[0][0], free.parameters[0].detach(), rtol=1e-3)


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
    assert _ratio(optimizer) > 1.01


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
def test_parameters_that_join_leave_the_brake_as_it_is(way):
    """A thousand times the curvature joins: what moved before moves as it did."""
    hollow = Hollow()
    optimizer = hollow.train(8, **WAYS[way])  # the next step measures what is new alone
    before = _ratio(optimizer)
    steep = nn.Parameter(torch.ones(7, dtype=DOUBLE))
    optimizer.add_param_group({"params": [steep]})
    train(optimizer, lambda: hollow() + 1e3 * (steep**2).sum(), 1)
    assert before < 0.9
    assert _ratio(optimizer) == pytest.approx(before, rel=1e-12)
    train(optimizer, lambda: hollow() + 1e3 * (steep**2).sum(), 3)
    assert {float(g["first_scale"]) for g in optimizer.param_groups} == {
        float(optimizer.param_groups[0]["first_scale"])
    }


def _ratio(optimizer):
    group = optimizer.param_groups[0]
    return float(group["mean_scale"]) / float(group["first_scale"])


@over_ways
def test_micro_batches_are_one_batch(way):
    ends = []
    for parts in (1, 4):
        hollow = Hollow()
        optimizer = ESGD(hollow.parameters, **OPTIONS | WAYS[way])
        train_accumulated(optimizer, [lambda h=hollow, n=parts: h() / n] * parts, 9)
        ends.append([p.detach() for p in hollow.parameters])
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-11, atol=1e-13)


@over_ways
def test_a_saved_run_goes_on_as_if_it_had_not_stopped(way):
    straight, stopped = Hollow(), Hollow()
    straight.train(11, momentum=0.9, **WAYS[way])
    state = copy.deepcopy(stopped.train(5, momentum=0.9, **WAYS[way]).state_dict())
    again = ESGD(stopped.parameters, **OPTIONS | {"momentum": 0.9} | WAYS[way])
    again.load_state_dict(state)
    train(again, stopped, 6)
    assert_same(straight.parameters, stopped.parameters)


@over_ways
def test_a_state_from_before_has_its_floor_where_it_is(way):
    """The brake is one at first, and moves from there."""
    hollow = Hollow()
    state = hollow.train(8, mean_floor=False, **WAYS[way]).state_dict()
    for group in state["param_groups"]:
        del group["first_scale"], group["mean_floor"]
    optimizer = ESGD(hollow.parameters, **OPTIONS | WAYS[way])
    optimizer.load_state_dict(state)
    assert _ratio(optimizer) == 1
    assert optimizer.param_groups[0]["mean_floor"] is True
    train(optimizer, hollow, 8)
    assert 0 < _ratio(optimizer) < 1


@over_ways
def test_switched_on_later_its_floor_is_the_beginning(way):
    hollow, again = Hollow(), Hollow()
    optimizer = hollow.train(8, mean_floor=False, **WAYS[way])
    first = float(optimizer.param_groups[0]["first_scale"])
    assert first == pytest.approx(float(again.train(1).param_groups[0]["mean_scale"]), rel=1e-12)
    optimizer.param_groups[0]["mean_floor"] = True
    train(optimizer, hollow, 4)
    assert float(optimizer.param_groups[0]["first_scale"]) == first


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
