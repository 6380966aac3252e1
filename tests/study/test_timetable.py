"""Numbers that change at every update: read on the device where a stack stands in its epoch."""

import pytest
import torch

from equilibrate.study.scheduling import Scheduling
from equilibrate.study.stacked_optimizer import StackedOptimizer
from equilibrate.study.timetable import Timetable
from tests.study.stacks import dense, stack_of, trials

TOTALS = [40, 25]
RESTLESS = ["cosine", "linear", "ramp:9", "ramp:3+cosine", "cosine+ending"]
CALM = ["constant", "ending"]
UPDATES = 7  # of an epoch


def made(schedules):
    settings = [{"lr": 0.1 * (k + 1), "lr_schedule": s} for k, s in enumerate(schedules)]
    optimizer = StackedOptimizer(torch.optim.SGD, settings, [torch.zeros(len(settings), 3)])
    schedule = Scheduling(optimizer.settings, TOTALS)
    return optimizer, schedule, Timetable(schedule, optimizer, UPDATES)


@pytest.mark.parametrize("name", RESTLESS)
def test_at_every_place_the_numbers_are_those_of_the_schedule(name):
    optimizer, schedule, table = made([name, "constant"])
    assert table.names == ("lr",)
    for update in [*range(3 * UPDATES), 2 * UPDATES + 3]:  # the last one: a run that goes on there
        table.begin(update)
        table.follow(torch.tensor([update % UPDATES]))
        assert optimizer.numbers["lr"].tolist() == schedule.at("lr", update)


@pytest.mark.parametrize("name", CALM)
def test_what_changes_seldom_is_not_tabled(name):
    optimizer, _, table = made([name, "constant"])
    assert table.names == ()
    assert not optimizer.follows
    before = optimizer.numbers["lr"].clone()
    table.begin(0)
    table.follow(torch.tensor([0]))
    assert torch.equal(optimizer.numbers["lr"], before)


@pytest.mark.parametrize("method", ["sgd", "adam", "rmsprop", "jacobi", "esgd"])
def test_a_stack_sets_no_tabled_number_from_the_host(method, monkeypatch):
    told = []
    monkeypatch.setattr(StackedOptimizer, "set", lambda self, name, values: told.append(name))
    own = {"lr": 1e-3, "lr_schedule": "cosine"}
    stack = stack_of(dense(), trials(method, [own] * 2))
    optimizer = stack.optimizer
    before = optimizer.numbers["lr"].clone()
    stack.advance(2)
    assert "lr" not in told
    assert (optimizer.numbers["lr"] < before).all()
    used = optimizer._derived["lr"]
    assert torch.equal(used, optimizer.numbers["lr"].to(used.dtype)[:, None])
