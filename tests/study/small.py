"""A small deterministic problem, trainer and list of trials, to test a study without waiting.

The trainer is built to betray a wrong resume: its noise comes from a generator whose state must be
saved, and every update draws as much of it as there are rows, so that a trial trained beside other
neighbours, or dropped at another moment, ends at other bits.
"""

from pathlib import Path

import pytest
import torch
from torch import nn

from equilibrate.study.problem import Problem
from equilibrate.study.search import random_search, successive_halving
from equilibrate.study.study import run_study
from equilibrate.study.trial import Trial

ROOT = Path(__file__).parents[2]  # programs in tests/ are found from here
EPOCHS = 4


def problem():
    def data():
        generator = torch.Generator().manual_seed(5)
        inputs = torch.randn(12, 3, generator=generator)
        return inputs, inputs.sum(1, keepdim=True).sin()

    return Problem("small", lambda seed: nn.Linear(3, 1), data, nn.functional.mse_loss, None, 4)


class SmallTrainer:
    """Linear regression by noisy SGD with momentum, one row a trial."""

    def __init__(self, trials):
        self.trials = list(trials)
        self.updates = 0
        self.inputs, self.targets = problem().cases
        seeds = [torch.Generator().manual_seed(trial.seed) for trial in trials]
        self.weights = torch.stack([torch.randn(3, 1, generator=seed) for seed in seeds])
        self.velocity = torch.zeros_like(self.weights)
        self.generator = torch.Generator().manual_seed(len(trials))

    def advance(self, iterations):
        for _ in range(iterations):
            batch = slice(4 * (self.updates % 3), 4 * (self.updates % 3) + 4)
            weights = self.weights.requires_grad_()
            losses = (self.inputs[batch] @ weights - self.targets[batch]).square().mean((1, 2))
            (gradient,) = torch.autograd.grad(losses.sum(), weights)
            noise = 1e-3 * torch.randn(weights.shape, generator=self.generator)
            self.velocity = self._column("momentum") * self.velocity + gradient + noise
            self.weights = weights.detach() - self._column("lr") * self.velocity
            self.updates += 1

    def errors(self):
        residuals = self.inputs @ self.weights - self.targets
        return [float(error) for error in residuals.square().mean((1, 2))]

    def keep(self, rows):
        assert rows
        self.trials = [self.trials[row] for row in rows]
        self.weights, self.velocity = self.weights[rows], self.velocity[rows]

    def state_dict(self):
        tensors = {"weights": self.weights.detach(), "velocity": self.velocity}
        return {**tensors, "noise": self.generator.get_state(), "updates": self.updates}

    def load_state_dict(self, state):
        self.weights, self.velocity = state["weights"], state["velocity"]
        self.generator.set_state(state["noise"])
        self.updates = state["updates"]

    def _column(self, name):
        return torch.tensor([trial.settings.get(name, 0.0) for trial in self.trials])[:, None, None]


def trial(method="plain", seed=0, **settings):
    return Trial("small", problem().fingerprint, method, settings, seed, 4, EPOCHS)


def trials():
    """Two methods; the third trial of the first diverges in the midst of its group's training."""
    rates = (0.05, 0.02, 1e9, 0.01, 0.03, 0.04)
    plain = [trial("plain", seed, lr=lr) for seed, lr in enumerate(rates)]
    return plain + [trial("heavy", seed, lr=0.01, momentum=0.5) for seed in range(2)]


def threes(trials):
    return [trials[start : start + 3] for start in range(0, len(trials), 3)]


def run(folder, listed=None, *, halving=False, **options):
    """A study that saves after every single update unless told otherwise."""
    listed = trials() if listed is None else listed
    search = successive_halving(EPOCHS, 6, eta=2) if halving else random_search(EPOCHS)
    usual = {"make_trainer": SmallTrainer, "together": threes, "checkpoint_seconds": 0}
    return run_study(problem(), listed, folder, **{"search": search, **usual, **options})


def numbers(records):
    """Everything in records that must not depend on kills: all but times and machines."""
    kept = []
    for record in records.values():
        plain = {k: v for k, v in record.items() if k not in ("provenance", "checksum")}
        curve = {k: v for k, v in record["curve"].items() if k != "seconds"}
        kept.append({**plain, "curve": curve})
    return sorted(kept, key=lambda record: record["key"])


class Stopped(Exception):
    """Stands for a kill where the process may live on."""


def stopping(updates):
    """A trainer that stops its study once a group has made so many updates."""

    class Stopping(SmallTrainer):
        def advance(self, iterations):
            if self.updates >= updates:
                raise Stopped
            super().advance(iterations)

    return Stopping


def stopped(folder, updates, **options):
    with pytest.raises(Stopped):
        run(folder, make_trainer=stopping(updates), **options)


def checkpoints(folder):
    return sorted(folder.glob("checkpoints/*"))
