"""The budget of a monitor bounds what it spends."""

import pytest

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
