"""What is watched: optimizers of every kind, a small model, a measured network."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD, hessian
from equilibrate.monitor import Monitor
from tests.cases import NETWORK

OPTIMIZERS = {
    "esgd": lambda p: ESGD(p, lr=0.05, probe_every=3, momentum=0.9),
    "jacobi": lambda p: JacobiSGD(p, lr=0.01, probe_every=2),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
}
EVERY_OPTIMIZER = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())


def small_model():
    """Dropout and running statistics: whatever a measurement disturbed would show."""
    torch.manual_seed(0)
    layers = [nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3)]
    return nn.Sequential(*layers)


def measured(make, **options):
    """A double-precision network after three steps, one measurement, and the dense Hessian."""
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = make(parameters)
    for _ in range(3):
        value = loss()
        if hasattr(optimizer, "probe"):
            optimizer.probe(value)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
    named = [(f"p{i}", p) for i, p in enumerate(parameters)]
    options = {"probes": 200, "steps": 83, **options}
    record = Monitor(named, optimizer, lambda r: None, budget=None, **options)(loss())
    return record, optimizer, parameters, hessian(loss(), parameters)
