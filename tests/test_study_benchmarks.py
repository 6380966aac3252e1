"""Benchmarks that train studies: what they train, and their tables of small records."""

import pytest
import torch

from benchmarks import drift, mixed_speed, one_stack, recipe
from benchmarks.strong_damping import METHODS
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS
from equilibrate.study.stack import Stack
from tests.study.stacks import CPU, dense

STUDIES = [
    ("damped", "mnist"),
    ("damped", "curves-like"),
    ("figure3", "mnist"),
    ("falling", "mnist"),
]


@pytest.fixture
def small():
    return dense((12, 8, 3, 8, 12), cases=32)


@pytest.mark.parametrize(("study", "task"), STUDIES)
def test_the_stack_of_a_study_has_every_setting_once_method_by_method(study, task, small):
    asked = mixed_speed.search_of(study, task)
    listed = mixed_speed.trials(asked, small, "float32")
    assert len({trial.key for trial in listed}) == len(listed)
    assert len(listed) == sum(len(own) for each in asked.rounds for own in each.values())
    order = [trial.method for trial in listed]
    assert order == sorted(order, key=asked.arms.index)


def test_a_study_trains_in_one_stack_on_a_small_network(small, monkeypatch):
    monkeypatch.setattr(mixed_speed, "TIMED", 2)
    asked = mixed_speed.search_of("damped", "mnist")
    stack = Stack(small, asked.methods, mixed_speed.trials(asked, small, "float32"), CPU)
    assert mixed_speed.timed(stack) > 0
    assert stack.updates == 2 * mixed_speed.ROUNDS


def test_the_recipe_is_told_change_by_change_over_seeds(small, monkeypatch, tmp_path):
    monkeypatch.setattr(recipe, "EPOCHS", 2)
    changes = [recipe.variant(m, floor) for m in (0.99, 0.995) for floor in (False, True)]
    asked = recipe.trials(small, 2, "float32", changes, [1.0, 2.0])
    one_stack.train(small, METHODS["ESGD"], asked, tmp_path, torch.device("cpu"))
    ends = recipe.ends(tmp_path)
    rates = [f"{float(f'{share * recipe.edge(small):.3g}'):g}" for share in (1, 2)]
    own = [
        f"ESGD, lr {lr}, momentum {m}{floor}"
        for lr in rates for m in (0.99, 0.995) for floor in ("", ", mean_floor")
    ]  # fmt: skip
    assert list(ends) == sorted(own)
    assert {end.seeds for end in ends.values()} == {2}
    nag = recipe.nag_trials(small, 1, "float32", [0.995], (0.01, 0.02))
    one_stack.train(small, METHODS["NAG"], nag, tmp_path, torch.device("cpu"))
    rows = recipe.rows(tmp_path, "mnist")
    assert [row.split(" | ")[1] for row in rows] == [
        *sorted(own), *(f"NAG, lr {lr}, momentum 0.995" for lr in (0.01, 0.02)),
    ]  # fmt: skip


def test_the_drift_is_that_of_the_winner_with_and_without_the_floor(small, monkeypatch, tmp_path):
    monkeypatch.setattr(drift, "EPOCHS", 3)
    monkeypatch.setattr(drift, "SHOWN", (1, 3))
    asked = drift.trials(small, [2], [False, True], "float32")
    assert [trial.settings["mean_floor"] for trial in asked] == [False, True]
    assert {trial.settings["momentum"] for trial in asked} == {0.9975}
    one_stack.train(small, MOMENTUM_ARMS, asked, tmp_path, torch.device("cpu"), 1)
    head, _, without, floored = drift.table(tmp_path)
    assert head == "| seed | | 100 | 300 |"
    assert without.startswith("| 2 | without | ")
    assert floored.startswith("| 2 | mean_floor | ")
