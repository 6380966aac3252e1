"""Stacked or alone: what cannot be stacked is told, what can is measured, and it is remembered."""

import pytest
import torch

from equilibrate.study import choose, timing
from equilibrate.study.alone import Alone
from equilibrate.study.choose import Chooser
from equilibrate.study.methods import METHODS, Method
from equilibrate.study.space import LogUniform
from equilibrate.study.stack import Stack
from tests.study.stacks import CPU, regression, trials
from tests.study.test_stackable import UNSTACKABLE

NADAM = Method("nadam", torch.optim.NAdam, {"lr": LogUniform(1e-4, 1e-3)})


@pytest.fixture
def chooser(tmp_path):
    """Makes a chooser in one folder, as one study after the other would."""

    def make(problem=None, *, at_once=None, methods=None):
        named = methods or {**METHODS, "nadam": NADAM}
        return Chooser(problem or regression(), named, tmp_path, CPU, at_once)

    return make


def rates(count, **more):
    return [{"lr": 0.01 * (k + 1), **more} for k in range(count)]


REASONS = {
    "a network": (UNSTACKABLE["batch normalisation"][0], "sgd", {}, "buffers"),
    "an optimizer": (regression(), "nadam", {}, "NAdam has no stacked rule"),
    "a setting": (regression(), "sgd", {"dampening": 0.5}, "does not know dampening=0.5"),
}


@pytest.mark.parametrize("name", REASONS)
@pytest.mark.parametrize("at_once", [None, 4])
def test_what_cannot_be_stacked_trains_alone_and_the_reason_is_told_once(
    name, at_once, chooser, capsys
):
    problem, method, more, words = REASONS[name]
    listed = trials(method, rates(3, **more), "float32")
    for _ in range(2):
        made = chooser(problem, at_once=at_once)
        assert made.together(listed) == [[each] for each in listed]
        assert isinstance(made.make_trainer(listed[:1]), Alone)
    told = capsys.readouterr().err
    assert told.count("one after the other") == 1
    assert words in told


def test_a_reason_that_is_the_network_s_is_told_once_for_all_methods(chooser, capsys):
    made = chooser(UNSTACKABLE["dropout"][0])
    for method in ("sgd", "rmsprop", "nadam"):
        assert len(made.together(trials(method, rates(2), "float32"))) == 2
    told = capsys.readouterr().err
    assert told.count("one after the other: the network draws random numbers, as dropout does") == 1
    assert told.count("nadam: trials train one after the other, for NAdam has no stacked rule") == 1
    assert "vmap" not in told


@pytest.mark.parametrize(("stacked", "single", "taken"), [(2.9, 1.0, Stack), (3.1, 1.0, Alone)])
def test_the_faster_way_is_taken_told_and_remembered(
    stacked, single, taken, chooser, capsys, monkeypatch
):
    """Three at once in 2.9 times the time of one are faster than one after the other."""
    listed = trials("sgd", rates(3), "float32")
    monkeypatch.setattr(choose, "_medians", lambda *trainers: [stacked, single])
    made = chooser()
    groups = made.together(listed)
    assert [len(group) for group in groups] == ([3] if taken is Stack else [1, 1, 1])
    assert isinstance(made.make_trainer(groups[0]), taken)
    told = capsys.readouterr().err
    assert f"{stacked / 3:.2f} of the time" in told
    assert ("taken: stacked" in told) == (taken is Stack)
    monkeypatch.setattr(choose, "_medians", lambda *trainers: [single, stacked])
    later = chooser()  # a resumed study, on another day
    assert later.together(listed) == groups
    assert isinstance(later.make_trainer(groups[0]), taken)
    assert capsys.readouterr().err == ""


def test_both_ways_are_timed_in_turn_on_the_problem_itself(chooser, monkeypatch):
    order = []
    monkeypatch.setattr(timing, "seconds_per_update", lambda one, _: order.append(one) or 1.0)
    chooser().together(trials("esgd", rates(3), "float32"))
    assert [type(trainer) for trainer in order] == [Stack, Alone] * choose._ROUNDS
    assert all(trainer.updates == 1 for trainer in order)  # the warm-up is behind them


def test_trials_of_another_structure_are_decided_and_trained_apart(chooser, monkeypatch):
    monkeypatch.setattr(choose, "_medians", lambda *trainers: [1.0, 1.0])
    plain, heavy = rates(2), rates(2, momentum=0.9)
    listed = trials("sgd", [plain[0], heavy[0], plain[1], heavy[1]], "float32")
    groups = chooser().together(listed)
    assert groups == [[listed[0], listed[2]], [listed[1], listed[3]]]


@pytest.mark.parametrize(("at_once", "sizes"), [(1, [1] * 5), (2, [2, 2, 1]), (8, [5])])
def test_at_once_is_obeyed_without_measurement(at_once, sizes, chooser, monkeypatch):
    monkeypatch.delattr(choose, "_medians")
    listed = trials("sgd", rates(5), "float32")
    groups = chooser(at_once=at_once).together(listed)
    assert [len(group) for group in groups] == sizes


def test_at_once_may_change_between_two_runs(chooser):
    listed = trials("sgd", rates(6), "float32")
    assert [len(g) for g in chooser(at_once=2).together(listed)] == [2, 2, 2]
    assert [len(g) for g in chooser(at_once=3).together(listed)] == [3, 3]


def test_at_once_that_comes_too_late_is_told(chooser, capsys):
    listed = trials("sgd", rates(4), "float32")
    assert [len(g) for g in chooser(at_once=1).together(listed[:2])] == [1, 1]
    assert capsys.readouterr().err == ""
    assert [len(g) for g in chooser(at_once=3).together(listed)] == [1] * 4
    assert "for --at-once 3 choose another folder" in capsys.readouterr().err


def test_a_trial_without_neighbours_trains_alone(chooser, monkeypatch):
    monkeypatch.delattr(choose, "_medians")
    (trial,) = trials("sgd", rates(1), "float32")
    made = chooser()
    assert made.together([trial]) == [[trial]]
    assert isinstance(made.make_trainer([trial]), Alone)


def test_a_measurement_leaves_no_trace_in_what_is_trained(chooser):
    """The trainers that were timed are thrown away: the study starts from the beginning."""
    listed = trials("esgd", rates(2), "float32")
    made = chooser()
    made.together(listed)
    trainer = made.make_trainer(listed[:1])
    assert trainer.updates == 0
