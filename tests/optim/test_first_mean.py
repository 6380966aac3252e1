"""What mean_floor compares with: the first mean, while parameters join, save and load."""

import copy

import pytest
import torch
from torch import nn

from equilibrate import ESGD
from tests.optim.hollow import (
    DOUBLE,
    OPTIONS,
    Hollow,
    mean_of,
    ratio_of,
)
from tests.optim.laws import assert_same
from tests.optim.loops import train, train_accumulated
from tests.optim.ways import WAYS, over_ways, ways  # noqa: F401


@over_ways
def test_parameters_that_join_leave_the_brake_as_it_is(way):
    """A thousand times the curvature joins: what moved before moves as it did."""
    hollow = Hollow()
    optimizer = hollow.train(8, **WAYS[way])  # the next step measures what is new alone
    before = ratio_of(optimizer)
    steep = nn.Parameter(torch.ones(7, dtype=DOUBLE))
    optimizer.add_param_group({"params": [steep]})
    train(optimizer, lambda: hollow() + 1e3 * (steep**2).sum(), 1)
    assert before < 0.9
    assert ratio_of(optimizer) == pytest.approx(before, rel=1e-12)
    train(optimizer, lambda: hollow() + 1e3 * (steep**2).sum(), 3)
    assert {float(g["first_mean_scale"]) for g in optimizer.param_groups} == {
        float(optimizer.param_groups[0]["first_mean_scale"])
    }


@over_ways
@pytest.mark.parametrize("warmup", [1, 2])
def test_what_joins_hides_no_fall_of_the_others(warmup, way):
    """It joins in the very step in which the curvature of the others is measured again."""
    hollow = Hollow(coupling=0.0)
    optimizer = hollow.train(3, warmup_probes=warmup, **WAYS[way])
    first = float(optimizer.param_groups[0]["first_mean_scale"])
    steep = nn.Parameter(torch.ones(7, dtype=DOUBLE))
    optimizer.add_param_group({"params": [steep]})
    with torch.no_grad():
        for parameter in hollow.parameters:
            parameter.mul_(0.1)
    train(optimizer, lambda: hollow() + 1e3 * (steep**2).sum(), 1)
    own = mean_of(optimizer.diagonal()[:2]) / first
    assert own < 0.5
    assert ratio_of(optimizer) == pytest.approx(float(own), rel=1e-9)


@over_ways
def test_a_parameter_that_is_measured_and_never_moves_hides_nothing(way):
    ends = []
    for own in (WAYS["reference"], WAYS[way]):
        hollow = Hollow()
        optimizer = ESGD(hollow.parameters, **OPTIONS | own)
        for _ in range(9):
            loss = hollow()
            optimizer.probe(loss)
            loss.backward()
            hollow.parameters[1].grad = None
            optimizer.step()
            optimizer.zero_grad()
        ends.append(ratio_of(optimizer))
    assert ends[0] < 0.95
    assert ends[1] == pytest.approx(ends[0], rel=1e-9)


@over_ways
def test_the_floor_is_the_mean_of_the_first_step_however_often_it_was_measured_before(way):
    hollow = Hollow()
    optimizer = ESGD(hollow.parameters, **OPTIONS | WAYS[way])
    optimizer.calibrate([hollow() for _ in range(5)])
    vectors = [torch.ones_like(p) for p in hollow.parameters]
    optimizer.observe(vectors, [0.1 * v for v in vectors])
    hollow().backward()
    optimizer.step()
    assert ratio_of(optimizer) == 1


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
        del group["first_mean_scale"], group["mean_floor"]
    optimizer = ESGD(hollow.parameters, **OPTIONS | WAYS[way])
    optimizer.load_state_dict(state)
    assert ratio_of(optimizer) == 1
    assert optimizer.param_groups[0]["mean_floor"] is True
    train(optimizer, hollow, 8)
    assert 0 < ratio_of(optimizer) < 1


@over_ways
def test_switched_on_later_its_floor_is_the_beginning(way):
    hollow, again = Hollow(), Hollow()
    optimizer = hollow.train(8, mean_floor=False, **WAYS[way])
    first = float(optimizer.param_groups[0]["first_mean_scale"])
    assert first == pytest.approx(float(again.train(1).param_groups[0]["mean_scale"]), rel=1e-12)
    optimizer.param_groups[0]["mean_floor"] = True
    train(optimizer, hollow, 4)
    assert float(optimizer.param_groups[0]["first_mean_scale"]) == first
