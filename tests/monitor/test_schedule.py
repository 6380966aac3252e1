"""The budget of a monitor bounds what it spends."""

import warnings

import pytest
import torch

from equilibrate.monitor import Monitor
from equilibrate.monitor.schedule import Schedule


@pytest.mark.parametrize("cost", [0.1, 5.0, 40.0])
def test_the_budget_bounds_what_is_spent(cost):
    now = [0.0]
    schedule = Schedule(every=3, budget=0.02, clock=lambda: now[0])
    spent, measured = 0.0, 0
    for _ in range(20_000):
        if schedule.due():
            schedule.spend(cost)
            now[0] += cost
            spent, measured = spent + cost, measured + 1
        now[0] += 0.5
        assert spent <= 0.02 * now[0] + cost
    expected = min(20_000 / 3, 0.02 * 10_000 / 0.98 / cost)
    assert measured == pytest.approx(expected, rel=0.1, abs=1.01)


def _warned(calls, **options):
    """What a monitor says whose every look at the clock finds a second gone."""
    now = [0.0]

    def clock():
        now[0] += 1.0
        return now[0]

    weight, seen = torch.ones(2, requires_grad=True), []
    optimizer = torch.optim.SGD([weight], lr=0.1)
    monitor = Monitor([("w", weight)], optimizer, seen.append, clock=clock, **options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(calls):
            monitor((weight**2).sum())
    return [str(one.message) for one in said], len(seen)


def test_the_first_measurement_that_the_budget_holds_back_is_told_and_no_other():
    said, measured = _warned(30, every=3, budget=0.05)
    assert measured > 1  # it is held back twice at least
    assert len(said) == 1
    for words in ("5% of the time", "took 1 s", "20 s old", "budget=None", "every 3 calls"):
        assert words in said[0]


# Nothing is held back: no budget, no call that is due, a budget that suffices.
QUIET = {
    "no budget": (9, {"every": 3, "budget": None}),
    "not due": (9, {"every": 10, "budget": 0.05}),
    "enough": (30, {"every": 3, "budget": 0.9}),
}


@pytest.mark.parametrize(("calls", "options"), QUIET.values(), ids=QUIET.keys())
def test_nothing_is_told_where_nothing_is_held_back(calls, options):
    assert _warned(calls, **options)[0] == []


def test_it_waits_only_while_the_budget_holds_a_call_back():
    now = [0.0]
    schedule = Schedule(every=1, budget=0.5, clock=lambda: now[0])
    assert schedule.due()
    schedule.spend(2.0)  # half of the first four seconds
    found = []
    for now[0] in (3.0, 5.0):
        found.append((schedule.due(), schedule.waits))
    assert found == [(False, True), (True, False)]
