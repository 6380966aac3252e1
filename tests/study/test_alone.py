"""A trial with the optimizer itself: any network, any torch optimizer, resumed to the last bit."""

import io

import pytest
import torch
from torch import nn

from equilibrate.study.alone import Alone
from equilibrate.study.contenders import find_method
from equilibrate.study.methods import METHODS, Method
from equilibrate.study.problem import Problem
from tests.study.stacks import CPU, regression, trials, vector_of, without_curvature


def _random():
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1))


def _normalised():
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))


def problem(model):
    whole = regression()
    return Problem("own", lambda seed: model(), whole.data, whole.loss, None, 8)


def trainer(model, method, **settings):
    (trial,) = trials(method.name, [settings], "float32")
    return Alone(problem(model), method, [trial], CPU)


def saved_and_loaded(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def state_of(alone):
    return torch.cat([value.flatten().float() for value in alone.network.state_dict().values()])


METHODS_TRIED = {
    "sgd": (METHODS["sgd"], {"lr": 0.01}),
    "esgd": (METHODS["esgd"], {"lr": 0.01}),
    "jacobi": (METHODS["jacobi-shipped"], {"lr": 0.001, "warmup_probes": 5}),
    "NAdam": (find_method("torch.optim:NAdam"), {"lr": 1e-3}),
    "Rprop": (find_method("torch.optim:Rprop"), {"lr": 1e-3}),
    "a schedule": (METHODS["adam"], {"lr": 1e-2, "lr_schedule": "ramp:9+cosine"}),
}


@pytest.mark.parametrize("model", [_random, _normalised], ids=["dropout", "batchnorm"])
@pytest.mark.parametrize("name", METHODS_TRIED)
def test_saving_loading_and_going_on_is_never_having_stopped(model, name):
    method, settings = METHODS_TRIED[name]
    whole, first, second = (trainer(model, method, **settings) for _ in range(3))
    whole.advance(33)
    first.advance(13)
    torch.rand(3)  # what others draw meanwhile must not matter
    second.load_state_dict(saved_and_loaded(first.state_dict()))
    second.advance(20)
    assert torch.equal(state_of(whole), state_of(second))
    assert whole.errors() == second.errors()
    assert not torch.equal(state_of(first), state_of(second))


def test_training_neither_reads_nor_moves_torchs_generator():
    before = torch.get_rng_state()
    one = trainer(_random, METHODS["sgd"], lr=0.01)
    one.advance(5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    other = trainer(_random, METHODS["sgd"], lr=0.01)
    other.advance(5)
    assert torch.equal(state_of(one), state_of(other))


def test_errors_are_those_of_the_network_as_it_is_used():
    """Dropout is off, batch normalisation uses its running statistics, and neither is moved."""
    for model in (_random, _normalised):
        alone = trainer(model, METHODS["sgd"], lr=0.01)
        alone.advance(5)
        before = state_of(alone)
        assert alone.errors() == alone.errors()
        assert torch.equal(state_of(alone), before)
        x, y = alone.data
        with torch.no_grad():
            expected = float(alone.problem.loss(alone.network.eval()(x), y))
        assert alone.errors()[0] == pytest.approx(expected, rel=1e-6)


def _classes():
    """Every torch optimizer that steps without a closure and takes dense gradients."""
    left_out = ("LBFGS", "SparseAdam", "Optimizer")
    return [
        name
        for name in dir(torch.optim)
        if isinstance(found := getattr(torch.optim, name), type)
        and issubclass(found, torch.optim.Optimizer)
        and name not in left_out
        and name != "Muon"  # for matrices alone
    ]


@pytest.mark.parametrize("name", _classes())
def test_any_torch_optimizer_class_is_a_method_and_trains(name):
    method = find_method(f"torch.optim:{name}")
    assert method.label == name
    (settings,) = method.settings(1)
    alone = trainer(_random, method, **settings)
    start = state_of(alone)
    before = alone.errors()[0]
    alone.advance(40)
    assert not torch.equal(state_of(alone), start)
    assert alone.errors()[0] < 1.5 * before


def test_a_run_that_left_the_numbers_stays_failed():
    (trial,) = trials("sgd", [{"lr": 1e30}], "float32")
    alone = Alone(regression(), METHODS["sgd"], [trial], CPU)
    alone.advance(8)
    assert not torch.tensor(alone.errors()).isfinite().any()
    again = Alone(regression(), METHODS["sgd"], [trial], CPU)
    again.load_state_dict(saved_and_loaded(alone.state_dict()))
    again.advance(3)
    assert not torch.tensor(again.errors()).isfinite().any()
    assert again.updates == 11


@pytest.mark.filterwarnings("ignore:A curvature product was not finite")
@pytest.mark.parametrize("method", ["esgd", "jacobi-shipped", "esgd-paper"])
def test_a_run_without_finite_curvature_at_the_start_has_failed(method):
    (trial,) = trials(method, [{**METHODS[method].fixed, "lr": 0.01}])
    alone = Alone(without_curvature(0), METHODS[method], [trial], CPU)
    alone.advance(3)
    assert not torch.tensor(alone.errors()).isfinite().any()


def test_its_own_settings_reach_the_optimizer_and_the_studys_do_not():
    method = Method("m", torch.optim.SGD, {}, {"lr_schedule": "cosine"})
    alone = trainer(_random, method, lr=0.1, momentum=0.5, lr_schedule="cosine")
    group = alone.optimizer.param_groups[0]
    assert (group["lr"], group["momentum"]) == (0.1, 0.5)
    alone.advance(25)
    assert group["lr"] == pytest.approx(
        0.1 * 0.5 * (1 + torch.cos(torch.tensor(torch.pi * 24 / 50)))
    )
    assert len(vector_of(alone)) == 5 * 8 + 8 + 8 + 1
