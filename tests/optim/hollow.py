"""A loss whose curvature falls on the way, and the ways to descend it: for tests of mean_floor."""

import torch
from torch import nn

from equilibrate import ESGD
from tests.optim.loops import train

DOUBLE = torch.float64
STARTS = [[1.0, -2.0, 0.7], [0.3, 1.5]]
SHARE = 0.01  # damping, of the mean of a tensor's own diagonal
OPTIONS = {"lr": 0.05, "probe_every": 3, "warmup_probes": 4, "decay": 0.5, "mean_floor": True}


class Hollow:
    """A quartic: curvature changes along the way, and every element has its own."""

    def __init__(self, factor=1.0, coupling=0.5, jumps=()):
        self.parameters = [nn.Parameter(torch.tensor(s, dtype=DOUBLE)) for s in STARTS]
        self.factor, self.coupling = factor, coupling
        self.jumps, self.calls = dict(jumps), 0  # factors on the loss at some calls

    def __call__(self):
        self.calls += 1
        first, second = self.parameters
        bowl = sum((p**4).sum() for p in self.parameters)
        return (
            self.factor
            * self.jumps.get(self.calls, 1.0)
            * (bowl + self.coupling * first[0] ** 2 * second[1] ** 2)
        )

    def train(self, steps, kind=ESGD, **options):
        optimizer = kind(self.parameters, **OPTIONS | {"damping": SHARE} | options)
        train(optimizer, self, steps)
        return optimizer


def mean_of(diagonals):
    return torch.cat([d.flatten() for d in diagonals]).mean()


def ratio_of(optimizer):
    group = optimizer.param_groups[0]
    return float(group["mean_scale"]) / float(group["first_mean_scale"])
