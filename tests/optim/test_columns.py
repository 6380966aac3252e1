"""The states of a group's parameters are found by their places, whatever else came or went."""

from collections import defaultdict

import pytest
import torch
from torch import nn

from equilibrate.optim.columns import OF_PARAMETER, Columns


def _nothing(states, keys):
    pass


def _another_came(states, keys):
    states[torch.zeros(1)]


def _one_went_and_came_back(states, keys):
    states[keys[0]] = states.pop(keys[0])


def _one_was_replaced(states, keys):
    states[keys[1]] = dict(states[keys[1]])


CHANGES = [_nothing, _another_came, _one_went_and_came_back, _one_was_replaced]
CHOICES = {"all": [0, 1, 2], "in another order": [2, 0, 1], "some": [0, 1], "others": [1, 2]}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("chosen", CHOICES)
def test_states_are_those_of_the_parameters(chosen, change):
    keys = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    states = defaultdict(dict, {p: dict.fromkeys(OF_PARAMETER, 1) for p in keys})
    parameters = [keys[i] for i in CHOICES[chosen]]
    columns = Columns(parameters, states)
    change(states, keys)
    assert len(columns.states) == len(parameters)
    assert all(found is states[p] for found, p in zip(columns.states, parameters, strict=True))
    assert columns.are_held(states, OF_PARAMETER)
