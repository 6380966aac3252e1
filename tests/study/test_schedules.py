"""Schedules of learning rate and momentum: torch's own where there is one."""

import math

import pytest
import torch

from equilibrate.study.schedules import learning_rate_factor, momentum_at
from equilibrate.study.scheduling import Scheduling

TOTAL = 12
TORCHS = {
    "constant": lambda o: torch.optim.lr_scheduler.ConstantLR(o, factor=1.0),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=TOTAL),
    "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.0, total_iters=TOTAL),
    "ramp:4": lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.25, 1.0, total_iters=3),
}


@pytest.mark.parametrize("name", TORCHS)
def test_a_schedule_is_torchs(name):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    scheduler = TORCHS[name](optimizer)
    for update in range(TOTAL + 1):
        factor = learning_rate_factor(name, update, TOTAL)
        assert 0.3 * factor == pytest.approx(scheduler.get_last_lr()[0], abs=1e-15)
        optimizer.step()
        scheduler.step()


def test_joined_schedules_multiply():
    for update in range(TOTAL):
        parts = [learning_rate_factor(part, update, TOTAL) for part in ("ramp:4", "cosine")]
        assert learning_rate_factor("ramp:4+cosine", update, TOTAL) == math.prod(parts)


@pytest.mark.parametrize("name", ["step", "ramp", "ramp:0", "ramp:x", "", "cosine+", "cosine:3"])
def test_there_is_no_other_schedule(name):
    with pytest.raises(ValueError, match="no learning-rate schedule"):
        learning_rate_factor(name, 0, TOTAL)


def test_sutskevers_momentum_rises_never_above_its_limit_and_falls_at_the_end():
    path = [momentum_at("sutskever", 0.99, update, 100_000) for update in range(100_000)]
    assert path[0] == 0.5
    assert max(path) == 0.99
    assert path[: 100_000 - 1000] == sorted(path[: 100_000 - 1000])
    assert set(path[-1000:]) == {0.9}
    with pytest.raises(ValueError, match="no momentum schedule"):
        momentum_at("cosine", 0.9, 0, 1)


def test_an_ending_lowers_the_momentum_of_the_last_updates_and_nothing_else():
    path = [momentum_at("ending", 0.95, update, 9000) for update in range(9000)]
    assert path == [0.95] * 8000 + [0.9] * 1000
    assert momentum_at("ending", 0.5, 8999, 9000) == 0.5


def test_an_ending_takes_a_tenth_of_the_learning_rate_in_the_last_updates_and_nothing_else():
    path = [learning_rate_factor("ending", update, 9000) for update in range(9000)]
    assert path == [1.0] * 8000 + [0.1] * 1000


@pytest.mark.parametrize("total", [0, 1, 7, 8, 100, 7999])
def test_the_end_of_a_short_run_is_its_last_eighth(total):
    factors = [learning_rate_factor("ending", update, total) for update in range(total)]
    momenta = [momentum_at("ending", 0.95, update, total) for update in range(total)]
    assert factors.count(0.1) == momenta.count(0.9) == total // 8
    assert factors == sorted(factors, reverse=True)


def test_only_what_changes_is_handed_over_until_all_is_forgotten():
    given = []
    settings = {"lr": 1.0, "lr_schedule": "ramp:2", "momentum_schedule": "constant"}
    schedule = Scheduling([settings], [10])
    for update in range(5):
        schedule.apply(update, lambda name, values: given.append((name, *values)))
    assert given == [("lr", 0.5), ("lr", 1.0)]
    schedule.forget()
    schedule.apply(4, lambda name, values: given.append((name, *values)))
    assert given[-1] == ("lr", 1.0)
    assert len(given) == 3
