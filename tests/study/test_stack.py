"""A trial in a stack is the same trial alone: step by step, and over whole runs."""

import pytest
import torch

from equilibrate.study.alone import Alone
from equilibrate.study.methods import METHODS, Method
from equilibrate.study.problem import Problem
from equilibrate.study.space import Choice
from equilibrate.study.stack import Stack
from equilibrate.study.autoencoder import autoencoder, cross_entropy, squared_error
from equilibrate.study.trial import Trial

CPU = torch.device("cpu")


def _problem(sizes=(30, 20, 5, 20, 30), cases=64):
    images = torch.rand(cases, sizes[0], generator=torch.Generator().manual_seed(0))
    return Problem(
        "small",
        lambda seed: autoencoder(sizes, seed=seed),
        lambda: (images, images),
        cross_entropy,
        squared_error,
        batch_size=8,
    )


def _trials(method, settings, precision="float64", seeds=(0, 1, 2)):
    return [
        Trial("small", "f", method, s, seed=seed, batch_size=8, epochs=10, precision=precision)
        for s, seed in zip(settings, seeds, strict=False)
    ]


SETTINGS = {
    "sgd": [{"lr": 0.01}, {"lr": 0.02}],
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


@pytest.mark.parametrize("method", SETTINGS)
def test_a_trial_in_a_stack_is_the_trial_alone(method):
    problem, found = _problem(), METHODS[method]
    trials = _trials(method, SETTINGS[method])
    stack = Stack(problem, found, trials, CPU)
    stack.advance(60)
    for row, trial in enumerate(trials):
        alone = Alone(problem, found, [trial], CPU)
        alone.advance(60)
        for mine, name in zip(alone.network.parameters(), stack.parameters, strict=True):
            torch.testing.assert_close(stack.parameters[name][row].detach(), mine.detach(), rtol=0, atol=1e-9)
        assert stack.errors()[row] == pytest.approx(alone.errors()[0], rel=1e-9)
