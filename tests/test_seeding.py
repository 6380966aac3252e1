"""Seeding for a while: the same numbers as `torch.manual_seed`, and no generator disturbed."""

from unittest.mock import patch

import pytest
import torch
from torch import nn

from equilibrate.inspect import inspect_model
from equilibrate.seeding import seeded
from equilibrate.study import Problem
from tests.inspect import problems

HAS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def _inspection():
    inspect_model(problems.small.network(0), problems.small.cases, nn.MSELoss(), quick=True)


def _inside(context):
    with context:
        torch.rand(1)


CALLS = {
    "seeded": lambda: _inside(seeded(3)),
    "a network": lambda: problems.small.network(3),
    "an inspection": _inspection,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_cuda_that_is_not_in_use_gets_no_seed(call):
    """A seed given before CUDA starts waits there, and no state could be saved before."""
    with (
        patch("torch.cuda.is_initialized", return_value=False),
        patch("torch.cuda.manual_seed_all") as seeds,
        patch("torch.cuda.manual_seed") as seed,
    ):
        call()
    assert not seeds.called
    assert not seed.called


@pytest.mark.parametrize("number", [0, 7, 2**63 - 1, 1 - 2**63])
def test_a_seed_gives_the_weights_that_manual_seed_gives(number):
    problem = Problem("p", lambda seed: nn.Linear(3, 2), problems.small.data, nn.MSELoss())
    found = problem.network(number)
    with torch.random.fork_rng():
        torch.manual_seed(number)
        expected = nn.Linear(3, 2)
    assert torch.equal(found.weight, expected.weight)


def test_the_cpu_s_generator_is_put_back_after_an_error():
    before = torch.get_rng_state()
    with pytest.raises(KeyError), seeded(1):
        _ = {}[str(torch.rand(3))]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_gpu_in_use_is_put_back(call):
    """Two GPUs as fork_rng and manual_seed_all see them: a generator is the number it was given."""
    gpus = {0: "first", 1: "second"}
    with (
        patch("torch.cuda.is_initialized", return_value=True),
        patch("torch.cuda.device_count", return_value=2),
        patch(
            "torch.cuda.manual_seed_all", lambda seed: gpus.update({0: seed, 1: seed, 2: "seeded"})
        ),
        patch("torch.cuda.get_rng_state", lambda device: gpus[device]),
        patch("torch.cuda.set_rng_state", lambda state, device: gpus.update({device: state})),
    ):
        call()
    assert gpus == {0: "first", 1: "second", 2: "seeded"}


@HAS_GPU
def test_a_gpu_is_seeded_inside_and_put_back():
    torch.cuda.init()
    before, drawn = torch.cuda.get_rng_state(), []
    for _ in range(2):
        with seeded(5):
            drawn.append(torch.rand(4, device="cuda"))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        assert torch.equal(drawn[0], torch.rand(4, device="cuda"))
    assert torch.equal(*drawn)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    _inspection()
    assert torch.equal(torch.cuda.get_rng_state(), before)
