"""growth_limit: with momentum, the whole update may not outgrow its own running average."""

import copy
import io
import math
from contextlib import nullcontext as does_not_raise

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from equilibrate.optim import growth, limiting
from equilibrate.optim.movement import Movement
from equilibrate.study.methods import Method
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.stack import Stack
from equilibrate.study.trial import Trial
from tests.optim.laws import AMPLIFIED, assert_near, assert_same
from tests.optim.loops import train
from tests.optim.test_on_device import Forbidden
from tests.optim.ways import WAYS, over_ways, ways  # noqa: F401

DOUBLE = torch.float64
CURVATURES = [[1.0, 4.0, 0.5], [3.0, 2.0]]  # of two tensors, in each direction
STARTS = [[1.0, -2.0, 0.7], [0.3, 1.5]]
JUMPS = {12: 40.0, 25: 100.0, 26: 100.0}  # factors on the loss at some steps; D knows nothing
NESTEROV = {"momentum": 0.9, "nesterov": True}
OPTIONS = {"lr": 0.01, "probe_every": 1000, "warmup_probes": 2, **NESTEROV}


class Valley:
    """A quadratic, or a quartic, whose loss is multiplied at some steps, in some unit."""

    def __init__(self, factor=1.0, unit=1.0, power=2, jumps=JUMPS):
        self.parameters = [nn.Parameter(torch.tensor(s, dtype=DOUBLE) * unit) for s in STARTS]
        self.factor, self.unit, self.power, self.jumps, self.steps = factor, unit, power, jumps, 0

    def __call__(self):
        self.steps += 1
        rows = zip(self.parameters, CURVATURES, strict=True)
        terms = [(torch.tensor(c) * (p / self.unit) ** self.power / 2).sum() for p, c in rows]
        return self.factor * self.jumps.get(self.steps, 1.0) * sum(terms)

    def ends(self):
        return [p.detach() / self.unit for p in self.parameters]

    def train(self, steps=30, kind=ESGD, **options):
        optimizer = kind(self.parameters, **OPTIONS | options)
        train(optimizer, self, steps)
        return optimizer


def by_hand(steps, limit, lr=0.01, momentum=0.9, share=0.01, nesterov=True):
    """The formula, number by number. On this quadratic D is the curvature, whatever v is."""
    theta = [list(start) for start in STARTS]
    buffer = [[0.0] * len(start) for start in STARTS]
    average, factors = 0.0, []
    for k in range(1, steps + 1):
        jump = JUMPS.get(k, 1.0)
        u = [
            [jump * c * t / (c + share * sum(cs) / len(cs)) for t, c in zip(ts, cs, strict=True)]
            for ts, cs in zip(theta, CURVATURES, strict=True)
        ]
        n = math.sqrt(sum(x * x for row in u for x in row))
        c = 1.5 * limit if k <= 20 else limit
        f = 1.0 if k == 1 else min(1.0, c * average / n)
        b = min(0.998, 1 - 1 / k)
        average = b * average + (1 - b) * f * n
        factors.append(f)
        for i, row in enumerate(u):
            for j, x in enumerate(row):
                buffer[i][j] = momentum * buffer[i][j] + f * x
                ahead = f * x + momentum * buffer[i][j] if nesterov else buffer[i][j]
                theta[i][j] -= lr * ahead
    return theta, average, factors


@over_ways
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("limit", [2.0, 1.1])
def test_thirty_steps_are_the_formula_by_hand(limit, nesterov, way):
    valley = Valley()
    optimizer = valley.train(growth_limit=limit, nesterov=nesterov, **WAYS[way])
    theta, average, factors = by_hand(30, limit, nesterov=nesterov)
    assert min(factors) < 0.2
    assert max(factors[1:]) == 1
    expected = [torch.tensor(row, dtype=DOUBLE) for row in theta]
    torch.testing.assert_close(valley.ends(), expected, rtol=1e-11, atol=1e-13)
    group, elements = optimizer.param_groups[0], sum(map(len, STARTS))
    assert float(group["update_mean"]) * math.sqrt(elements) == pytest.approx(average, rel=1e-11)
    assert int(group["update_count"]) == 30


@over_ways
@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
@pytest.mark.parametrize("limit", [{}, {"update_limit": 0.9}])
def test_every_way_is_the_reference_where_curvature_changes(way, kind, limit):
    """A quartic, two groups and a parameter alone in its group, with probes in between."""
    ends = []
    for options in (WAYS["reference"], WAYS[way]):
        valley = Valley(power=4)
        first, second = valley.parameters
        groups = [{"params": [first], "momentum": 0.5}, {"params": [second], "lr": 0.02}]
        optimizer = kind(groups, **OPTIONS | {"probe_every": 3} | options | limit)
        train(optimizer, valley, 30)
        ends.append([*valley.ends(), torch.tensor(float(optimizer.param_groups[1]["update_mean"]))])
    assert_near(ends[1], ends[0], AMPLIFIED)


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 7.0])
def test_other_units_of_the_parameters_change_nothing(unit):
    plain, scaled = Valley(power=4), Valley(power=4, unit=unit)
    for valley in (plain, scaled):
        valley.train()
    assert_near(scaled.ends(), plain.ends(), AMPLIFIED)


@pytest.mark.parametrize("factor", [1e-7, 0.3, 1e5])
def test_another_scale_of_the_loss_changes_nothing(factor):
    plain, scaled = Valley(power=4), Valley(power=4, factor=factor)
    for valley in (plain, scaled):
        valley.train()
    assert_near(scaled.ends(), plain.ends(), AMPLIFIED)


@pytest.mark.parametrize("way", [name for name in WAYS if name != "average on the device"])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("lr", [0.02, 0.3])
def test_where_all_is_calm_nothing_is_limited(way, nesterov, lr):
    ends = []
    for limit in (2.0, None):
        valley = Valley(jumps={})
        valley.train(100, growth_limit=limit, nesterov=nesterov, lr=lr, **WAYS[way])
        ends.append(valley.ends())
    assert_same(*ends)


@over_ways
def test_without_momentum_nothing_is_measured(way, monkeypatch):
    def never(self):
        raise AssertionError("measured without momentum")

    monkeypatch.setattr(Movement, "squares", never)
    ends = []
    for limit in (2.0, 1.01, None):
        valley = Valley()
        optimizer = valley.train(growth_limit=limit, momentum=0.0, nesterov=False, **WAYS[way])
        assert int(optimizer.param_groups[0]["update_count"]) == 0
        ends.append(valley.ends())
    assert_same(ends[0], ends[2])
    assert_same(ends[1], ends[2])
    Valley().train(growth_limit=None, **WAYS[way])
    with pytest.raises(AssertionError, match="measured without"):
        Valley().train(**WAYS[way])


@over_ways
@pytest.mark.parametrize("free", [{"momentum": 0.0, "nesterov": False}, {"growth_limit": None}])
def test_a_group_left_out_is_neither_measured_nor_limited(way, free):
    """Each group moves as it does alone: this loss has no term of both."""
    together, limited, left_out = Valley(), Valley(), Valley()
    options = OPTIONS | WAYS[way]
    first, second = together.parameters
    train(ESGD([{"params": [first]}, {"params": [second]} | free], **options), together, 30)
    train(ESGD(limited.parameters[:1], **options), limited, 30)
    train(ESGD(left_out.parameters[1:], **options | free | {"growth_limit": None}), left_out, 30)
    assert_same(together.ends(), [limited.ends()[0], left_out.ends()[1]])


def test_groups_share_one_factor_and_the_smallest_limit():
    ends = []
    for limits in ((1.2, 3.0), (1.2, 1.2)):
        valley = Valley()
        pairs = zip(valley.parameters, limits, strict=True)
        groups = [{"params": [p], "growth_limit": limit} for p, limit in pairs]
        train(ESGD(groups, **OPTIONS), valley, 30)
        ends.append(valley.ends())
    assert_same(*ends)


@over_ways
@pytest.mark.parametrize("at", [11, 24])
def test_saving_and_loading_equals_never_stopping(at, way):
    straight = Valley()
    straight.train(**WAYS[way])
    stopped = Valley()
    first = stopped.train(at, **WAYS[way])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = ESGD(stopped.parameters, **OPTIONS | WAYS[way])
    second.load_state_dict(torch.load(file, weights_only=True))
    train(second, stopped, 30 - at)
    assert_same(stopped.ends(), straight.ends())
    parameters, third = copy.deepcopy((stopped.parameters, second))
    for optimizer, own in ((second, stopped.parameters), (third, parameters)):
        valley = Valley(jumps={3: 100.0})
        valley.parameters = own
        train(optimizer, valley, 5)
    assert_same(parameters, stopped.parameters)


def test_what_is_saved_of_a_plain_optimizer_are_plain_numbers(monkeypatch):
    monkeypatch.setattr(limiting, "on_one_device", lambda parameters: True)
    optimizer = Valley().train(5)
    assert isinstance(optimizer.param_groups[0]["update_mean"], torch.Tensor)
    saved = optimizer.state_dict()["param_groups"][0]
    # A rank that saves must not differ from those that do not.
    assert isinstance(optimizer.param_groups[0]["update_mean"], torch.Tensor)
    assert (type(saved["update_mean"]), type(saved["update_count"])) == (float, int)


def test_an_ordinary_step_does_not_wait_for_an_average_on_the_device(monkeypatch):
    monkeypatch.setattr(limiting, "on_one_device", lambda parameters: True)
    for kept in (True, False):
        valley = Valley()
        optimizer = valley.train(11)  # the next loss jumps
        valley().backward()
        if not kept:
            monkeypatch.setattr(limiting, "on_one_device", lambda parameters: False)
        expected = does_not_raise() if kept else pytest.raises(AssertionError, match="waits for")
        with Forbidden(), expected:
            optimizer.step()


@over_ways
def test_a_state_from_before_starts_a_new_average(way):
    valley = Valley()
    state = valley.train(24, **WAYS[way]).state_dict()
    for group in state["param_groups"]:
        for name in ("growth_limit", *growth.OF_GROUP):
            del group[name]
    optimizer = ESGD(valley.parameters, **OPTIONS | WAYS[way] | {"growth_limit": 1.7})
    optimizer.load_state_dict(state)
    train(optimizer, valley, 1)
    group = optimizer.param_groups[0]
    assert group["growth_limit"] == 1.7
    assert int(group["update_count"]) == 1


@over_ways
def test_a_group_that_joins_finds_the_average(way):
    """Steps of the same size in more parameters: nothing has grown."""
    torch.manual_seed(0)
    first, second = (nn.Parameter(torch.ones(n, dtype=DOUBLE)) for n in (4, 400))
    options = OPTIONS | WAYS[way] | {"lr": 1e-6, "growth_limit": 1.1}
    optimizer = ESGD([first], **options)
    train(optimizer, lambda: (first**2).sum(), 25)
    before = float(optimizer.param_groups[0]["update_mean"])
    optimizer.add_param_group({"params": [second]})
    train(optimizer, lambda: (first**2).sum() + (second**2).sum(), 2)
    for group in optimizer.param_groups:
        assert int(group["update_count"]) == 27
        assert float(group["update_mean"]) == pytest.approx(before, rel=1e-4)


@over_ways
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_goes_its_way_as_before(bad, way):
    ends, averages = [], []
    for limit in (2.0, None):
        valley = Valley(jumps={})
        optimizer = valley.train(8, growth_limit=limit, **WAYS[way])
        averages.append([float(optimizer.param_groups[0][name]) for name in growth.OF_GROUP])
        valley().backward()
        valley.parameters[1].grad[0] = bad
        optimizer.step()
        ends.append(valley.ends())
        averages.append([float(optimizer.param_groups[0][name]) for name in growth.OF_GROUP])
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0, equal_nan=True)
    assert not bool(ends[0][1][0].isfinite())
    assert bool(ends[0][0].isfinite().all())
    assert averages[0] == averages[1]
    assert averages[0][1] == 8


@over_ways
def test_steps_of_nothing_do_not_count(way):
    """A first gradient of zeros must not freeze all that follow."""
    valley = Valley(jumps={1: 0.0, 2: 0.0})
    parameters, loss = valley.parameters, valley
    optimizer = ESGD(parameters, **OPTIONS | WAYS[way] | {"damping_kind": "absolute"})
    train(optimizer, loss, 2)
    assert int(optimizer.param_groups[0]["update_count"]) == 0
    train(optimizer, loss, 1)
    assert int(optimizer.param_groups[0]["update_count"]) == 1
    assert all(bool((p.detach() != torch.tensor(s, dtype=DOUBLE)).all())
               for p, s in zip(parameters, STARTS, strict=True))  # fmt: skip


@pytest.mark.parametrize("way", ["reference", "foreach"])
def test_a_scaler_is_undone_before_anything_is_measured(way):
    ends = []
    for scales in (None, [1024.0, 2.0]):
        valley = Valley()
        optimizer = ESGD(valley.parameters, **OPTIONS | WAYS[way])
        for step in range(30):
            loss = valley()
            optimizer.probe(loss)
            if scales is None:
                loss.backward()
            else:  # what GradScaler hands over
                factor = scales[step % 2]
                (factor * loss).backward()
                optimizer.grad_scale = torch.tensor(factor)
                optimizer.found_inf = torch.tensor(0.0)
            optimizer.step()
            optimizer.zero_grad()
        ends.append(valley.ends())
    assert_same(*ends)


def test_the_average_on_the_device_is_the_plain_one():
    torch.manual_seed(0)
    sizes = torch.exp(2 * torch.randn(3, 60, dtype=DOUBLE))
    sizes[0, 5], sizes[1, 0], sizes[2, 30], sizes[0, 40] = math.nan, math.inf, 0.0, 1e200
    limits = [1.2, 2.0, math.inf]
    mean, count = torch.zeros(3, dtype=DOUBLE), torch.zeros(3, dtype=torch.int64)
    plain = [(0.0, 0)] * 3
    for column in sizes.unbind(1):
        factors = growth.limit_(column, mean, count, torch.tensor(limits, dtype=DOUBLE))
        found = [
            growth.limit(float(n), *kept, limit)
            for n, kept, limit in zip(column, plain, limits, strict=True)
        ]
        plain = [(a, k) for _, a, k in found]
        expected = [[f, a, float(k)] for f, a, k in found]
        here = torch.stack([factors, mean, count.double()], 1)
        torch.testing.assert_close(here, torch.tensor(expected, dtype=DOUBLE), rtol=1e-13, atol=0)


def test_a_field_of_relus_trains_where_momentum_alone_throws_it_away():
    problem = BUILT_IN["image-64-relu"](None)
    settings = [{"lr": 0.2, **NESTEROV}, {"lr": 0.2, "growth_limit": None, **NESTEROV}]
    trials = [
        Trial(problem.name, problem.fingerprint, "esgd", own, 0, problem.batch_size, 50, "float32")
        for own in settings
    ]
    stack = Stack(problem, Method("esgd", ESGD, {}), trials, torch.device("cpu"))
    (start, _) = stack.errors()
    stack.advance(60)
    limited, free = stack.errors()
    assert limited < start / 5
    assert math.isnan(free) or free > start


def test_an_optimizer_pickled_before_there_was_a_limit_goes_on_without_one():
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = ESGD([weight], lr=0.1, momentum=0.9)
    state = copy.deepcopy(optimizer.__getstate__())
    for held in (state["defaults"], *state["param_groups"]):
        for name in ("growth_limit", "update_limit", "update_mean", "update_count"):
            del held[name]
    restored = ESGD.__new__(ESGD)
    restored.__setstate__(state)
    (own,) = restored.param_groups[0]["params"]
    loss = own.square().sum()
    restored.probe(loss)
    loss.backward()
    restored.step()
    assert restored.param_groups[0]["growth_limit"] is None
