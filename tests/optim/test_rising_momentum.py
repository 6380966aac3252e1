"""A momentum that rises: Sutskever's numbers, beside other schedulers, saved and loaded."""

import math

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LinearLR, OneCycleLR

from equilibrate import ESGD, JacobiSGD, RisingMomentum
from equilibrate.optim.rising_momentum import rising_momentum

OPTIMIZERS = {
    "ESGD": lambda p: ESGD(p, lr=0.02, momentum=0.9, nesterov=True),
    "JacobiSGD": lambda p: JacobiSGD(p, lr=0.01, momentum=0.9),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9),
}


def made(name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    groups = [{"params": list(model[0].parameters())}, {"params": list(model[2].parameters())}]
    return model, OPTIMIZERS[name](groups)


def train(model, optimizer, schedulers, updates):
    """Return the momentum of every update, equal in both groups."""
    seen = []
    for _ in range(updates):
        x = torch.randn(8, 3)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        if hasattr(optimizer, "probe"):
            optimizer.probe(loss)
        optimizer.zero_grad()
        loss.backward()
        (momentum,) = {group["momentum"] for group in optimizer.param_groups}
        seen.append(momentum)
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    return seen


@pytest.mark.parametrize("most", [0.9, 0.99, 0.999])
def test_the_numbers_are_those_of_sutskevers_equation(most):
    for update in (0, 1, 249, 250, 999, 12_345, 749_999):
        formula = min(1 - 2 ** (-1 - math.log2(update // 250 + 1)), most)
        assert rising_momentum(update, most) == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_update_has_the_momentum_of_its_number(name):
    model, optimizer = made(name)
    scheduler = RisingMomentum(optimizer, 0.95, every=2)
    assert train(model, optimizer, [scheduler], 25) == [
        rising_momentum(update, 0.95, 2) for update in range(25)
    ]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_learning_rates_are_left_to_their_own_scheduler(name):
    alone, both = made(name), made(name)
    ramp = LinearLR(alone[1], 0.1, total_iters=5)
    train(*alone, [ramp], 7)
    ramp, rising = LinearLR(both[1], 0.1, total_iters=5), RisingMomentum(both[1], every=3)
    momenta = train(*both, [ramp, rising], 7)
    assert [g["lr"] for g in both[1].param_groups] == [g["lr"] for g in alone[1].param_groups]
    assert momenta == [rising_momentum(update, 0.99, 3) for update in range(7)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_saved_and_loaded_it_goes_on(name):
    model, optimizer = made(name)
    scheduler = RisingMomentum(optimizer, 0.99, every=2)
    train(model, optimizer, [scheduler], 5)
    again, fresh = made(name)
    resumed = RisingMomentum(fresh, 0.5)  # what it was made with comes from the state
    again.load_state_dict(model.state_dict())
    fresh.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    assert train(again, fresh, [resumed], 6) == train(model, optimizer, [scheduler], 6)


def test_a_learning_rate_on_the_device_stays_a_tensor():
    rate = torch.tensor(0.1)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=rate, momentum=0.9)
    RisingMomentum(optimizer)
    assert optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == pytest.approx(0.1)


BAD = {
    "most of one": ({"most": 1.0}, 0.9, "Invalid most: 1.0"),
    "most of zero": ({"most": 0.0}, 0.9, "Invalid most"),
    "no updates": ({"every": 0}, 0.9, "Invalid every: 0"),
    "part of an update": ({"every": 2.5}, 0.9, "Invalid every: 2.5"),
    "a truth": ({"every": True}, 0.9, "Invalid every: True"),
    "a word": ({"most": "a"}, 0.9, "Invalid most: 'a'"),
    "nothing": ({"most": None}, 0.9, "Invalid most: None"),
    "no momentum": ({}, 0.0, "Give momentum=0.9"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_and_change_nothing(case):
    options, momentum, message = BAD[case]
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1, momentum=momentum)
    before = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    with pytest.raises(ValueError, match=message):
        RisingMomentum(optimizer, **options)
    after = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    assert after == before


def test_an_optimizer_that_has_no_momentum_at_all_is_refused():
    with pytest.raises(ValueError, match="AdamW has no momentum to schedule"):
        RisingMomentum(torch.optim.AdamW([nn.Parameter(torch.ones(2))]))


@pytest.mark.parametrize("cycle", [True, False])
@pytest.mark.parametrize("given", [0.0, 0.9])
def test_torchs_cycles_set_the_momentum_unless_told_not_to(given, cycle):
    optimizer = ESGD([nn.Parameter(torch.ones(2))], momentum=given)
    OneCycleLR(optimizer, max_lr=0.1, total_steps=10, cycle_momentum=cycle)
    assert optimizer.param_groups[0]["momentum"] == (0.95 if cycle else given)


@pytest.mark.parametrize(("most", "after"), [(0.9, 1000), (0.99, 12250)])
def test_when_a_momentum_is_reached(most, after):
    assert rising_momentum(after - 1, 0.999) < most <= rising_momentum(after, 0.999)
