"""Methods: what is built in, what is registered, what is found by module:name, what is drawn."""

import pytest
import torch

from equilibrate.study import Choice, LogUniform, Method, register
from equilibrate.study.methods import METHODS, find_method


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


@pytest.mark.parametrize("name", [f"{__name__}:Rateless", "torch.optim:LBFGS"])
def test_a_class_without_a_rate_to_search_around_is_refused_with_advice(name):
    with pytest.raises(ValueError, match="no default learning rate to search around; write a Meth"):
        find_method(name)


def test_a_registered_method_is_found_and_its_name_is_taken():
    method = Method("wide", torch.optim.Adam, {"lr": LogUniform(1e-5, 1e-1), "eps": Choice(1e-8)})
    try:
        assert find_method(register(method).name) is method
        with pytest.raises(ValueError, match="choose another name"):
            register(method)
    finally:
        METHODS.pop("wide")


def test_more_trials_begin_with_the_fewer():
    method = METHODS["adam"]
    assert method.settings(5)[:3] == method.settings(3)
    assert method.settings(3, seed=1) != method.settings(3)
