"""Trials of several methods in one stack are the same trials in stacks of their own."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from equilibrate.study.methods import METHODS
from equilibrate.study.outcome import comparable
from equilibrate.study.search import successive_halving
from equilibrate.study.spans import Span
from equilibrate.study.stack import Stack
from equilibrate.study.study import run_study
from tests.study.stacks import CPU
from tests.study.stacks import dense as _problem
from tests.study.stacks import trials as _trials
from tests.study.test_stack import ROWS_AND_COLUMNS, SETTINGS

NAMES = ["sgd", "rmsprop", "esgd", "jacobi"]


def _mixed():
    return [trial for name in NAMES for trial in _trials(name, SETTINGS[name])]


def _rows(stack):
    return [
        torch.cat([p[row].detach().flatten() for p in stack.parameters.values()])
        for row in stack._rows
    ]


def test_a_mixed_stack_is_its_parts():
    problem, trials = _problem(), _mixed()
    mixed = Stack(problem, METHODS, trials, CPU)
    assert [(b.start, b.stop) for b in mixed.blocks] == [(0, 2), (2, 4), (4, 7), (7, 9)]
    mixed.advance(45)
    rows = _rows(mixed)
    for name in NAMES:
        own = Stack(problem, METHODS[name], _trials(name, SETTINGS[name]), CPU)
        own.advance(45)
        for row in _rows(own):
            torch.testing.assert_close(rows.pop(0), row, rtol=0, atol=1e-9)


def test_a_mixed_stack_goes_on_from_its_state_and_without_some_trials():
    problem, trials = _problem(), _mixed()
    whole = Stack(problem, METHODS, trials, CPU)
    whole.advance(30)
    kept = [0, 4, 6]  # the blocks of two methods disappear
    other = Stack(problem, METHODS, trials, CPU)
    other.load_state_dict(whole.state_dict())
    other.keep(kept)
    fresh = Stack(problem, METHODS, [trials[row] for row in kept], CPU)
    fresh.load_state_dict(other.state_dict())
    for stack in (whole, other, fresh):
        stack.advance(30)
    for there, here, row in zip(_rows(other), _rows(fresh), kept, strict=True):
        assert torch.equal(there, here)
        torch.testing.assert_close(there, _rows(whole)[row], rtol=0, atol=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_on_a_gpu_a_mixed_stack_ends_where_it_does_on_a_cpu(schedule):
    """Captured, on streams, compiled; in double precision, so that only the order of sums parts."""
    rows = {}
    for device in ("cpu", "cuda"):
        trials = [_on(trial, schedule) for trial in _mixed()]
        stack = Stack(_problem(), METHODS, trials, torch.device(device))
        stack.advance(45)
        rows[device] = _rows(stack)
        stack.keep([0, 4, 6])  # fewer than half: a new stack, captured anew
        stack.advance(30)
        rows[device] += _rows(stack)
    for here, there in zip(rows["cuda"], rows["cpu"], strict=True):
        torch.testing.assert_close(here.cpu(), there, rtol=0, atol=1e-7)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_so_does_one_that_equilibrates_rows_and_columns():
    settings = [{**own, "scaling": "row-column"} for own in ROWS_AND_COLUMNS["momentum"]]
    rows = []
    for device in ("cpu", "cuda"):
        stack = Stack(_problem(), METHODS, _trials("esgd", settings), torch.device(device))
        stack.advance(65)
        rows.append(_rows(stack))
    for here, there in zip(*rows, strict=True):
        torch.testing.assert_close(here.cpu(), there.cpu(), rtol=0, atol=1e-7)


def _on(trial, schedule):
    return replace(trial, settings={**trial.settings, "lr_schedule": schedule})


def test_a_study_may_mix_methods_and_its_times_are_then_not_compared(tmp_path):
    problem, trials = _problem(), _mixed()
    report = []
    found = run_study(
        problem,
        trials,
        tmp_path,
        make_trainer=lambda members: Stack(problem, METHODS, members, CPU),
        together=lambda members: [members],
        report=report.append,
        mixed=True,
    )
    assert [found[trial.key]["method"] for trial in trials] == [t.method for t in trials]
    assert all(r["mixed"] and r["together"] == len(trials) for r in found.values())
    assert report[-1].done == report[-1].total
    winners = {name: [r for r in found.values() if r["method"] == name] for name in NAMES}
    assert comparable(winners) == ({}, "several methods shared one stack, and with it their time")


def test_halving_cuts_each_method_of_a_mixed_study_by_itself(tmp_path):
    problem = _problem()
    listed = [
        trial
        for name in ("sgd", "adam")
        for trial in _trials(name, [{"lr": lr} for lr in (1e-4, 1e-3, 1e-2)], epochs=9)
    ]
    found = run_study(
        problem,
        listed,
        tmp_path,
        make_trainer=lambda members: Stack(problem, METHODS, members, CPU),
        together=lambda members: [members],
        search=successive_halving(9, 3),
        mixed=True,
    )
    for name in ("sgd", "adam"):
        statuses = [r["status"] for r in found.values() if r["method"] == name]
        assert statuses.count("finished") == 1
        assert statuses.count("cut") == 2


@pytest.mark.parametrize(("probes", "device", "long"), [
    ((20_000, 3), "cuda", True), ((19_999, 3), "cuda", False), ((20_000, 3), "cpu", False),
])  # fmt: skip
def test_a_probing_pass_is_compiled_where_its_probes_are_many(probes, device, long):
    optimizer = SimpleNamespace(device=torch.device(device))
    blocks = tuple(SimpleNamespace(optimizer=optimizer, probes=number) for number in probes)
    assert Span(blocks, (20, 20)).long is long


def test_a_block_counts_the_probes_of_its_longest_trial():
    problem = _problem((12, 8, 3, 8, 12), cases=32)
    pairs = zip(_trials("esgd", [{"lr": 0.1}, {"lr": 0.2}]), (5, 50), strict=True)
    listed = [replace(trial, epochs=epochs) for trial, epochs in pairs]
    (block,) = Stack(problem, METHODS, listed, CPU).blocks
    assert block.probes == 50 * problem.updates_per_epoch // 20
