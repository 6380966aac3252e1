"""The arms of the momentum study: equal searches, and a mixed stack that trains them."""

import math
from dataclasses import replace

import pytest
import torch

from equilibrate.paper import momentum
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS, ROUNDS, grid
from equilibrate.study.alone import Alone
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.stack import Stack
from equilibrate.study.stacked_rules import SCHEDULES, why_not_stacked
from tests.study.stacks import CPU, dense, parted, row_of, trials, vector_of


@pytest.mark.parametrize("arms", ROUNDS, ids=["first round", "second round"])
def test_every_arm_has_nine_trials_over_one_decade_and_three_momenta(arms):
    assert list(arms) == list(MOMENTUM_ARMS)
    for arm in arms.values():
        assert arm.space["lr"].decades == pytest.approx(1)
        settings = grid(arm, 3)
        rates = [own["lr"] for own in settings]
        momenta = [own.get("momentum") or own["betas"][0] for own in settings]
        assert len(set(zip(rates, momenta, strict=True))) == 9
        assert len(set(rates)) == len(set(momenta)) == 3
        assert arm.space["lr"].low < min(rates)
        assert max(rates) < arm.space["lr"].high
        parts = [math.log10(rate / arm.space["lr"].low) for rate in sorted(set(rates))]
        assert parts == pytest.approx([1 / 6, 1 / 2, 5 / 6], abs=1e-3)


@pytest.mark.parametrize("arms", ROUNDS, ids=["first round", "second round"])
def test_esgd_is_as_shipped_but_for_what_is_searched(arms):
    esgd = arms["esgd"]
    assert {*esgd.space, *esgd.fixed} == {"lr", "momentum", "nesterov", *SCHEDULES}


def test_the_second_round_tries_what_the_first_did_not():
    first, second = ({a: grid(arms[a], 3) for a in MOMENTUM_ARMS} for arms in ROUNDS)
    for arm in MOMENTUM_ARMS:
        assert not [own for own in second[arm] if own in first[arm]]
    for arm in ("nag", "rmsprop", "jacobi", "esgd"):
        assert {own["momentum_schedule"] for own in second[arm]} == {"sutskever"}
    for arm in ("nag", "adam"):
        assert min(own["lr"] for own in second[arm]) > max(own["lr"] for own in first[arm])


def test_every_task_searches_at_30_000_and_120_000_updates_and_ends_at_750_000():
    per_epoch = {"mnist": 300, "curves-like": 100}
    for task in momentum.Settings().tasks:
        stops = [*task.rungs, task.epochs]
        updates = [stop * per_epoch[task.problem.removesuffix("-linear")] for stop in stops]
        assert updates == [30_000, 120_000, 750_000]
        assert all(stop % task.every == 0 for stop in stops)
        assert task.problem in BUILT_IN


def test_the_work_of_a_task_is_known_beforehand():
    full = momentum.Settings()
    search, seeds = 2 * 5 * (9 * 100 + 3 * 300), 5 * 3 * 2500
    assert momentum.units(replace(full, tasks=full.tasks[:1])) == search + seeds == 55_500


def _searched(epochs):
    return [
        each
        for name, arm in MOMENTUM_ARMS.items()
        for each in trials(name, grid(arm, 1), epochs=epochs)
    ]


def test_all_arms_in_one_mixed_stack_are_the_optimizers_alone():
    """Over the update at which the momentum falls: the 42nd of 48, 8 an epoch."""
    problem, listed = dense(), _searched(epochs=6)
    stack = Stack(problem, MOMENTUM_ARMS, listed, CPU)
    assert len(stack.blocks) == len(MOMENTUM_ARMS)
    stack.advance(45)
    for row, trial in enumerate(listed):
        assert why_not_stacked(MOMENTUM_ARMS[trial.method].optimizer, trial.settings) is None
        alone = Alone(problem, MOMENTUM_ARMS[trial.method], [trial], CPU)
        alone.advance(24)
        before = alone.optimizer.param_groups[0].get("momentum")
        alone.advance(21)
        assert parted(row_of(stack, row), vector_of(alone)) < 1e-9
        assert alone.optimizer.param_groups[0]["lr"] == 0.1 * trial.settings["lr"]
        if trial.method != "adam":
            ending = trial.settings["momentum_schedule"] == "ending"
            assert before == (trial.settings["momentum"] if ending else 0.5)
            assert alone.optimizer.param_groups[0]["momentum"] == (0.9 if ending else 0.5)


def test_a_mixed_stack_goes_on_with_one_trial_an_arm():
    problem, listed = dense(), _searched(epochs=128)
    whole, cut = (Stack(problem, MOMENTUM_ARMS, listed, CPU) for _ in range(2))
    kept = list(range(1, len(listed), 3))
    for stack in (whole, cut):
        stack.advance(22)
    cut.keep(kept)
    for stack in (whole, cut):
        stack.advance(8)
    for place, row in enumerate(kept):
        torch.testing.assert_close(row_of(cut, place), row_of(whole, row), rtol=0, atol=1e-9)
