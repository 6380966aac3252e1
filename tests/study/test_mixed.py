"""Trials of several methods in one stack are the same trials in stacks of their own."""

import torch

from equilibrate.study.methods import METHODS
from equilibrate.study.stack import Stack
from tests.study.stacks import CPU
from tests.study.stacks import dense as _problem
from tests.study.stacks import trials as _trials
from tests.study.test_stack import SETTINGS

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
