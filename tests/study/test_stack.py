"""A trial in a stack is the same trial alone: its path, its failures, what is saved of it."""

import io

import pytest
import torch

from equilibrate.study.methods import METHODS
from tests.study.stacks import (
    alone_of,
    convolution,
    dense,
    parted,
    regression,
    row_of,
    stack_of,
    trials,
    vector_of,
    without_curvature,
)

SETTINGS = {
    "sgd": [{"lr": 0.01}, {"lr": 0.02, "weight_decay": 0.1}],
    "nag": [
        {"lr": 0.01, "momentum": 0.9, "nesterov": True, "momentum_schedule": "sutskever"},
        {"lr": 0.02, "momentum": 0.5, "nesterov": True, "momentum_schedule": "sutskever"},
    ],
    "rmsprop": [{"lr": 1e-3, "alpha": 0.9}, {"lr": 1e-4, "alpha": 0.95, "weight_decay": 0.1}],
    "adagrad": [{"lr": 0.01, "lr_decay": 0.1}, {"lr": 0.003}],
    "adadelta": [{"lr": 1.0}, {"lr": 0.3, "rho": 0.95}],
    "adam": [
        {"lr": 1e-3, "lr_schedule": "ramp:5+cosine"},
        {"lr": 1e-4, "betas": (0.8, 0.99), "weight_decay": 0.1},
    ],
    "esgd": [
        {"lr": 0.01, "damping": 0.1},
        {"lr": 0.02, "decay": None, "warmup_probes": 3, "weight_decay": 0.1},
        {"lr": 0.02, "seed": 5, "decay": 0.99},
    ],
    "jacobi": [
        {"lr": 1e-3, "damping": 1.0, "warmup_probes": 30},
        {"lr": 1e-3, "damping": 3.0, "warmup_probes": 5},
    ],
}

CALM = {"lr": 0.01, "damping": 0.3}
CLIMB = {**CALM, "momentum": 0.9, "maximize": True}  # upwards, updates grow
VARIANTS = {
    "weight decay": [{**CALM, "weight_decay": 0.1}, CALM],
    "maximize": [{"lr": 1e-3, "maximize": True}, {"lr": 2e-3, "maximize": True}],
    "momentum": [{**CALM, "momentum": 0.5}, {**CALM, "momentum": 0.8}],
    "nesterov": [{**CALM, "momentum": 0.5, "nesterov": True}] * 2,
    "limit": [{**CALM, "momentum": 0.5, "update_limit": limit} for limit in (0.01, None)],
    "growth": [{**CLIMB, "growth_limit": limit} for limit in (1.01, None, 2.0)],
    "growth and limit": [
        {**CLIMB, "nesterov": True, "growth_limit": 1.01, "update_limit": limit}
        for limit in (0.3, None)
    ],
    "mean floor": [{**CALM, "mean_floor": True, "decay": 0.5, "lr": lr} for lr in (0.03, 0.1)],
    "mean floor, growth": [
        {**CALM, "mean_floor": True, "decay": 0.5, "lr": 0.1, "momentum": 0.5, "growth_limit": g}
        for g in (1.01, None)
    ],
    "momentum on a schedule": [{**CALM, "momentum": 0.8, "momentum_schedule": "sutskever"}] * 2,
    "a schedule": [{**CALM, "lr_schedule": "cosine"}, {**CALM, "lr_schedule": "ramp:9"}],
    "initial damping": [
        {**CALM, "damping_kind": "initial", "damping": damping, "mean_floor": True, "decay": 0.5}
        for damping in (0.03, 1.0)
    ],
    "absolute damping": [{**CALM, "damping_kind": "absolute"}] * 2,
    "normals": [{**CALM, "distribution": "gaussian"}, {**CALM, "distribution": "gaussian"}],
    "another probing": [{**CALM, "probe_every": 7}, {**CALM, "probe_every": 7, "decay": 0.9}],
    "no damping": [{"lr": 1e-4, "damping": 0.0}, {"lr": 1e-3, "damping": 0.0}],
}


def hold_equal(problem, listed, updates=45, within=1e-9):
    stack = stack_of(problem, listed)
    stack.advance(updates)
    errors = stack.errors()
    for row, trial in enumerate(listed):
        alone = alone_of(problem, trial)
        alone.advance(updates)
        assert parted(row_of(stack, row), vector_of(alone)) <= within
        assert errors[row] == pytest.approx(alone.errors()[0], rel=within)


@pytest.mark.parametrize("method", SETTINGS)
def test_a_trial_in_a_stack_is_the_trial_alone(method):
    hold_equal(dense(), trials(method, SETTINGS[method]))


@pytest.mark.parametrize("method", ["sgd", "adam", "esgd", "jacobi-shipped"])
def test_so_it_is_where_the_network_runs_under_vmap(method):
    settings = SETTINGS.get(method, [{"lr": 1e-3, "damping": 1.0}, {"lr": 3e-3, "damping": 1.0}])
    hold_equal(convolution(), trials(method, settings), updates=25)


@pytest.mark.parametrize("method", ["esgd", "jacobi-shipped"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_so_it_is_with_every_setting_of_a_curvature_method(method, variant):
    settings = VARIANTS[variant]
    if method == "jacobi-shipped":
        settings = [{**each, "lr": each["lr"] / 10, "warmup_probes": 5} for each in settings]
    hold_equal(dense(), trials(method, settings), updates=30)


ROWS_AND_COLUMNS = {
    "alone": [{**CALM, "decay": 0.99}, {**CALM, "lr": 0.003, "decay": None, "seed": 5}],
    "few vectors": [{**CALM, "warmup_probes": 5}, {**CALM, "warmup_probes": 5, "damping": 1.0}],
    "one vector": [{**CALM, "warmup_probes": 1, "damping": d} for d in (0.1, 1.0)],
    "momentum": [{**CALM, "momentum": m, "nesterov": True, "lr": 0.003} for m in (0.5, 0.8)],
    "mean floor": [{**CALM, "mean_floor": True, "decay": 0.5, "lr": lr} for lr in (0.03, 0.1)],
    "two warm-ups": [{**CALM, "warmup_probes": 16}, {**CALM, "warmup_probes": 20}],
    "initial damping": [{**CALM, "damping_kind": "initial", "damping": d} for d in (0.03, 1.0)],
}


@pytest.mark.parametrize("problem", [dense, convolution])
@pytest.mark.parametrize("variant", ROWS_AND_COLUMNS)
def test_so_it_is_where_rows_and_columns_are_equilibrated(variant, problem):
    settings = [{**each, "scaling": "row-column"} for each in ROWS_AND_COLUMNS[variant]]
    hold_equal(problem(), trials("esgd", settings), updates=45)


def test_a_descent_meets_the_floor_under_its_mean():
    stack = stack_of(dense(), trials("esgd", VARIANTS["mean floor"]))
    stack.advance(30)
    (block,) = stack.blocks
    assert bool((block.optimizer.brake < 0.99).all())


def test_a_climb_meets_the_limit_of_its_growth():
    """Else the two above would be equal whatever they measure."""
    ends = []
    for limit in (1.01, None):
        stack = stack_of(dense(), trials("esgd", [{**CLIMB, "growth_limit": limit}]))
        stack.advance(30)
        ends.append(row_of(stack, 0))
    assert parted(*ends) > 1e-3


def test_trials_that_differ_in_structure_share_a_stack():
    listed = trials("esgd", [settings for pair in VARIANTS.values() for settings in pair])
    hold_equal(dense(), listed, updates=25)


def test_a_parameter_that_the_loss_does_not_reach_stays_where_it_is():
    def model(seed):
        network = torch.nn.Sequential(torch.nn.Linear(30, 30), torch.nn.Sigmoid())
        network.register_parameter("idle", torch.nn.Parameter(torch.ones(3)))
        return network

    problem = dense((30, 20, 30))
    problem = type(problem)("idle", model, problem.data, problem.loss, problem.error, 8)
    for method in ("sgd", "esgd"):
        stack = stack_of(problem, trials(method, [{"lr": 0.01}, {"lr": 0.02}]))
        stack.advance(3)
        assert torch.equal(stack.parameters["idle"].detach(), torch.ones(2, 3, dtype=torch.float64))
        assert all(e == e for e in stack.errors())


def saved_and_loaded(state):
    """A state as a checkpoint gives it back: through a file, tensors and plain values only."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


RESUMED = {**SETTINGS, **{f"esgd: {name}": settings for name, settings in VARIANTS.items()}}


@pytest.mark.parametrize("name", RESUMED)
def test_saving_loading_and_going_on_is_never_having_stopped(name):
    listed = trials(name.partition(":")[0], RESUMED[name])
    whole, first, second = (stack_of(dense(), listed) for _ in range(3))
    whole.advance(33)
    first.advance(13)  # in mid-epoch, between two probes
    second.load_state_dict(saved_and_loaded(first.state_dict()))
    second.advance(20)
    for row in range(len(listed)):
        assert torch.equal(row_of(whole, row), row_of(second, row))
    assert whole.errors() == second.errors()


@pytest.mark.parametrize("method", ["adam", "esgd"])
def test_a_stack_goes_back_to_a_state_of_its_own(method):
    """Also where a schedule has set the very number since that the state holds an older one of."""
    scheduled = [{**each, "lr_schedule": "cosine"} for each in SETTINGS[method]]
    stack = stack_of(dense(), trials(method, scheduled))
    stack.advance(5)
    state = saved_and_loaded(stack.state_dict())
    stack.advance(1)
    once = row_of(stack, 0)
    stack.load_state_dict(state)
    stack.advance(1)
    assert torch.equal(row_of(stack, 0), once)


@pytest.mark.parametrize("method", SETTINGS)
def test_the_trials_that_are_kept_go_on_as_before(method):
    listed = trials(method, SETTINGS[method] + SETTINGS[method][:1])
    whole, cut = (stack_of(dense(), listed) for _ in range(2))
    whole.advance(40)
    cut.advance(17)
    rows = [0, len(listed) - 1]
    before = [row_of(cut, row) for row in rows]
    cut.keep(rows)
    assert cut.trials == [listed[row] for row in rows]
    assert all(torch.equal(row_of(cut, place), old) for place, old in enumerate(before))
    cut.advance(23)
    for place, row in enumerate(rows):
        assert parted(row_of(cut, place), row_of(whole, row)) < 1e-12
        assert cut.errors()[place] == pytest.approx(whole.errors()[row], rel=1e-12)


@pytest.mark.parametrize("method", ["adam", "esgd"])
def test_a_state_saved_after_a_cut_is_that_of_the_trials_left(method):
    listed = trials(method, SETTINGS[method])
    cut, fresh = stack_of(dense(), listed), stack_of(dense(), listed[1:])
    cut.advance(17)
    cut.keep(list(range(1, len(listed))))
    fresh.load_state_dict(saved_and_loaded(cut.state_dict()))
    for stack in (cut, fresh):
        stack.advance(23)
    assert torch.equal(row_of(cut, 0), row_of(fresh, 0))
    assert cut.errors() == fresh.errors()


def test_blocks_that_meet_when_the_one_between_them_goes_become_one():
    """Of sgd, esgd, sgd the middle is dropped: the outer two have one optimizer from then on."""
    names = ["sgd", "esgd", "sgd"]
    listed = [trials(name, [{"lr": 0.01}] * 3)[seed] for seed, name in enumerate(names)]
    stack = stack_of(dense(), listed)
    stack.advance(11)
    stack.keep([0, 2])
    stack.advance(11)
    for place, trial in enumerate((listed[0], listed[2])):
        alone = alone_of(dense(), trial)
        alone.advance(22)
        assert parted(row_of(stack, place), vector_of(alone)) < 1e-12


RUIN = {
    "sgd": {"lr": 1e30},
    "adam": {"lr": 1e200},
    "esgd": {"lr": 1e200, "damping": 0.1},
    "jacobi": {"lr": 1e200, "damping": 1.0, "warmup_probes": 30},
}


@pytest.mark.parametrize("method", RUIN)
def test_a_trial_that_diverges_leaves_its_neighbours_to_the_last_bit(method):
    tame = SETTINGS[method][0]
    with_ruin = trials(method, [tame, RUIN[method], tame])
    without = trials(method, [tame, tame, tame])
    ruined, sound = (stack_of(regression(), listed) for listed in (with_ruin, without))
    for stack in (ruined, sound):
        stack.advance(45)
    for row in (0, 2):
        assert torch.equal(row_of(ruined, row), row_of(sound, row))
        assert ruined.errors()[row] == sound.errors()[row]
    assert not torch.tensor(ruined.errors()[1]).isfinite()


@pytest.mark.parametrize("method", ["esgd", "jacobi-shipped", "esgd-paper"])
def test_a_trial_whose_first_curvature_is_not_finite_has_failed_alone(method):
    settings = [{**METHODS[method].fixed, "lr": 1e-3, "damping": 1.0}] * 3
    stack, sound = (
        stack_of(without_curvature(seed), trials(method, settings)) for seed in (1, None)
    )
    for each in (stack, sound):
        each.advance(21)
    assert not torch.tensor(stack.errors()[1]).isfinite()
    for row in (0, 2):
        assert torch.equal(row_of(stack, row), row_of(sound, row))
