"""damping_kind="initial": one number for all tensors and the whole run, in the loss's own unit."""

import copy
import warnings

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from tests.optim.hollow import DOUBLE, Hollow
from tests.optim.laws import assert_same
from tests.optim.loops import train
from tests.optim.ways import WAYS, over_ways, ways  # noqa: F401

INITIAL = {"damping": 0.5, "damping_kind": "initial", "mean_floor": False}


def ends(hollow):
    return [p.detach().clone() for p in hollow.parameters]


@over_ways
@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_it_is_the_absolute_damping_of_that_number(kind, momentum, way):
    """A share of the first mean, however much the curvature falls on the way."""
    hollow, again = Hollow(), Hollow()
    more = {"momentum": momentum, **WAYS[way]}
    optimizer = hollow.train(1, kind, **INITIAL, **more)
    number = 0.5 * float(optimizer.param_groups[0]["initial_scale"])
    train(optimizer, hollow, 14)
    absolute = INITIAL | {"damping": number, "damping_kind": "absolute"}
    again.train(15, kind, **absolute, **more)
    assert_same(ends(hollow), ends(again))
    now, first = (float(optimizer.param_groups[0][n]) for n in ("mean_scale", "initial_scale"))
    assert abs(now / first - 1) > 0.05  # or the test would not tell it from a relative one


@over_ways
@pytest.mark.parametrize("factor", [1e-5, 1e5])
def test_the_scale_of_the_loss_changes_nothing(factor, way):
    plain, scaled = Hollow(), Hollow(factor)
    for hollow in (plain, scaled):
        hollow.train(12, momentum=0.5, **INITIAL, **WAYS[way])
    for one, other in zip(ends(plain), ends(scaled), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=0)


@over_ways
def test_it_is_saved_and_loaded(way):
    hollow = Hollow()
    optimizer = hollow.train(5, **INITIAL, **WAYS[way])
    again = Hollow()
    other = ESGD(again.parameters, lr=9.0, **WAYS[way])
    for p, kept in zip(again.parameters, ends(hollow), strict=True):
        p.data.copy_(kept)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, loss in ((optimizer, hollow), (other, again)):
        train(one, loss, 6)
    assert_same(ends(hollow), ends(again))


@over_ways
def test_with_mean_floor_the_step_is_that_of_the_first_curvature(way):
    """The curvature vanishes, the damping stays: a plain step of g / (m0 + damping m0)."""
    weight = nn.Parameter(torch.tensor([2.0, 2.0], dtype=DOUBLE))
    options = {**INITIAL, "mean_floor": True, "decay": 0.01, "probe_every": 3, "warmup_probes": 4}
    optimizer = ESGD([weight], lr=0.05, **options, **WAYS[way])
    train(optimizer, lambda: (weight**4).sum(), 1)  # D is 12 * 4
    with torch.no_grad():
        weight.fill_(1e-4)
    train(optimizer, lambda: (weight**4).sum() + weight.sum(), 3)
    before = weight.detach().clone()
    train(optimizer, lambda: (weight**4).sum() + weight.sum(), 1)
    moved = (before - weight.detach()) / 0.05
    torch.testing.assert_close(moved, torch.full_like(moved, 1 / (48 + 24)), rtol=1e-2, atol=0)


@over_ways
def test_a_tensor_wholly_unseen_takes_the_mean_of_all(way):
    linear, steep = (nn.Parameter(torch.ones(2, dtype=DOUBLE)) for _ in range(2))
    optimizer = ESGD([linear, steep], lr=0.1, warmup_probes=2, **INITIAL, **WAYS[way])
    train(optimizer, lambda: 7 * linear.sum() + 3 * (steep**2).sum(), 1)  # D is 6
    moved = (1 - linear.detach()) / 0.1
    torch.testing.assert_close(moved, torch.full_like(moved, 7 / (6 + 3)), rtol=1e-12, atol=0)


@over_ways
def test_an_unseen_element_takes_its_tensors_mean(way):
    weight = nn.Parameter(torch.ones(3, dtype=DOUBLE))
    optimizer = ESGD([weight], lr=0.1, warmup_probes=2, **INITIAL, **WAYS[way])
    train(optimizer, lambda: 5 * weight[0] + weight[1] ** 2 + 2 * weight[2] ** 2, 1)  # D is 2, 4
    assert (1 - weight[0].item()) / 0.1 == pytest.approx(5 / (3 + 1.5), rel=1e-12)


@over_ways
def test_what_joins_brings_in_its_own_mean(way):
    """However far the curvature of the others has fallen meanwhile: theirs is that of the start."""
    early, late = (nn.Parameter(torch.full((n,), 1.0, dtype=DOUBLE)) for n in (3, 1))
    optimizer = ESGD([early], lr=0.1, decay=0.01, probe_every=1, warmup_probes=2,
                     **INITIAL, **WAYS[way])  # fmt: skip
    train(optimizer, lambda: (early**4).sum(), 1)  # D is 12
    with torch.no_grad():
        early.fill_(1e-3)
    train(optimizer, lambda: (early**4).sum(), 3)
    optimizer.add_param_group({"params": [late]})
    train(optimizer, lambda: (early**4).sum() + 10 * (late**2).sum(), 2)  # D is 20
    for group in optimizer.param_groups:
        assert float(group["initial_scale"]) == pytest.approx((3 * 12 + 1 * 20) / 4, rel=1e-9)


@over_ways
def test_where_no_curvature_is_seen_at_first_the_first_that_is_counts(way):
    weight = nn.Parameter(torch.ones(2, dtype=DOUBLE))
    optimizer = ESGD([weight], lr=1e-3, decay=0.01, probe_every=1, warmup_probes=2,
                     **INITIAL, **WAYS[way])  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing moves
        train(optimizer, weight.sum, 1)
    train(optimizer, lambda: 3 * (weight**2).sum(), 1)  # D is 6
    first = float(optimizer.param_groups[0]["initial_scale"])
    assert first == pytest.approx(6, rel=1e-2)
    train(optimizer, lambda: 30 * (weight**2).sum(), 3)
    assert float(optimizer.param_groups[0]["initial_scale"]) == first
    assert float(optimizer.param_groups[0]["mean_scale"]) > 50


@over_ways
def test_a_kind_that_is_none_is_refused_between_steps(way):
    hollow = Hollow()
    optimizer = hollow.train(2, **INITIAL, **WAYS[way])
    optimizer.param_groups[0]["damping_kind"] = "inital"
    before = ends(hollow)
    with pytest.raises(ValueError, match=r"one of .*'initial'"):
        train(optimizer, hollow, 1)
    assert_same(ends(hollow), before)
