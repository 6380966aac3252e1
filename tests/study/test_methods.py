"""Methods: what is built in, what is registered, what is found by module:name, what is drawn."""

import math
import sys
from dataclasses import replace

import pytest
import torch

from equilibrate.study import Choice, LogUniform, Method, register
from equilibrate.study.contenders import CONTENDERS, DECADES, MethodError, find_method
from equilibrate.study.methods import METHODS


class Rateless(torch.optim.SGD):
    """An optimizer without a learning rate."""

    def __init__(self, params):
        super().__init__(params, lr=1.0)


@pytest.mark.parametrize("name", METHODS)
def test_every_built_in_method_searches_a_decade_of_its_learning_rate_and_builds(name):
    method = METHODS[name]
    assert method.space["lr"].decades == pytest.approx(1.0)
    for settings in method.settings(3):
        own = {k: v for k, v in settings.items() if not k.endswith("_schedule")}
        method.optimizer([torch.zeros(2, requires_grad=True)], **own)


def built(method):
    """The method's optimizer of a small network, from the first settings that it draws."""
    network = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(3)))
    (settings,) = method.settings(1)
    own = {k: v for k, v in settings.items() if not k.endswith("_schedule")}
    return method.optimizer(network.parameters(), **own)


COMPARED = [*CONTENDERS, "torch.optim:SGD", "torch.optim:NAdam", "torch.optim:Adadelta"]


@pytest.mark.parametrize("name", COMPARED)
def test_every_method_is_compared_over_as_many_decades_and_builds(name):
    method = find_method(name)
    # Both ends are rounded to two digits, which moves each by 5% at most.
    assert method.space["lr"].decades == pytest.approx(DECADES, abs=2 * math.log10(1.05))
    assert DECADES >= 2.5
    if name != "soap":  # whose package is another's: below
        assert isinstance(built(method), torch.optim.Optimizer)


@pytest.mark.parametrize("name", METHODS)
def test_the_paper_s_range_lies_within_the_one_that_is_compared(name):
    own, compared = METHODS[name], CONTENDERS[name]
    assert compared.space["lr"].low < own.space["lr"].low
    assert own.space["lr"].high < compared.space["lr"].high
    rest = {**compared.space, "lr": own.space["lr"]}
    assert (rest, compared.fixed, compared.optimizer) == (own.space, own.fixed, own.optimizer)


# A paper's trial is found by the hash of its settings: these may never change.
DRAWN = {
    "sgd": {"lr": 0.07977},
    "rmsprop": {"lr": 0.0009019, "alpha": 0.95},
    "adam": {"lr": 0.0001078, "betas": (0.9, 0.99)},
    "esgd": {"lr": 0.05989},
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_recorded_studies_drew_is_drawn_for_ever(name):
    (settings,) = METHODS[name].settings(1)
    assert settings == DRAWN[name]


@pytest.mark.parametrize("default", ["esgd", "esgd-nesterov", "jacobi-shipped"])
def test_the_shipped_learning_rate_is_well_inside_its_range(default):
    method = CONTENDERS[default]
    where, rate = method.space["lr"], built(replace(method, space={})).defaults["lr"]
    place = math.log10(rate / where.low) / where.decades
    assert 1 / 6 < place < 5 / 6  # outside of which a winner is named as being near an edge


def test_soap_without_its_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(MethodError, match=r"pip install 'equilibrate\[wins\]'"):
        built(CONTENDERS["soap"])


class Standing(torch.optim.SGD):
    """An optimizer that stands still unless it is told otherwise: no range is around zero."""

    def __init__(self, params, lr=0.0):
        super().__init__(params, lr=lr)


@pytest.mark.parametrize("kind", [Rateless, Standing])
def test_a_class_without_a_rate_to_search_around_is_refused_with_advice(kind):
    with pytest.raises(MethodError, match="no default learning rate to search around; write a Me"):
        find_method(f"{__name__}:{kind.__name__}")


def test_a_whole_number_is_a_rate_to_search_around():
    assert find_method("torch.optim:LBFGS").space["lr"] == LogUniform(0.032, 32.0)


def test_a_registered_method_is_found_and_its_name_is_taken():
    method = Method("wide", torch.optim.Adam, {"lr": LogUniform(1e-5, 1e-1), "eps": Choice(1e-8)})
    try:
        assert find_method(register(method).name) is method
        with pytest.raises(ValueError, match="choose another name"):
            register(method)
    finally:
        CONTENDERS.pop("wide")


def test_more_trials_begin_with_the_fewer():
    method = METHODS["adam"]
    assert method.settings(5)[:3] == method.settings(3)
    assert method.settings(3, seed=1) != method.settings(3)
