"""The stack of trials behind the measured defaults is the optimizers, many at once."""

import pytest
import torch

from benchmarks.defaults import METHODS
from benchmarks.stack import Stack
from equilibrate.study.autoencoder import autoencoder, cross_entropy

SETTINGS = {
    "ESGD": [
        {"lr": 0.01, "damping": 0.1, "decay": None, "warmup_probes": 1},
        {"lr": 0.02, "damping": 1.0, "decay": 0.99, "warmup_probes": 3},
        {"lr": 0.02, "damping": 1.0, "decay": 0.99, "distribution": "gaussian"},
    ],
    "OneDamping": [{"lr": 0.02, "damping": 0.3, "decay": 0.99, "warmup_probes": 3}],
    "JacobiSGD": [{"lr": 0.001, "damping": 1.0, "decay": 0.99, "warmup_probes": 5}],
    "SGD": [{"lr": 0.01}, {"lr": 0.02}],
    "RMSprop": [{"lr": 1e-3, "alpha": 0.95}, {"lr": 1e-4, "alpha": 0.95}],
}


def _model():
    return autoencoder((30, 20, 5, 20, 30), seed=3, dtype=torch.float64)


@pytest.mark.parametrize("method", SETTINGS)
def test_a_trial_in_a_stack_is_the_optimizer_alone(method):
    data = torch.rand(50, 8, 30, dtype=torch.float64)
    settings = [{"warmup_probes": 20} | s if "decay" in s else s for s in SETTINGS[method]]
    stack = Stack(method, settings, [_model() for _ in settings])
    for batch in data:
        stack.step(batch.expand(len(settings), -1, -1))
    for trial, hyper in enumerate(settings):
        model = _model()
        optimizer = METHODS[method](model.parameters(), **hyper)
        for batch in data:
            loss = cross_entropy(model(batch), batch)
            if hasattr(optimizer, "probe"):
                optimizer.probe(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for alone, stacked in zip(model.parameters(), stack.values, strict=True):
            torch.testing.assert_close(stacked[trial].detach(), alone.detach(), rtol=0, atol=1e-9)
