"""A small study with the trainers of `equilibrate compare`: stacks, and trials alone."""

from dataclasses import replace
from pathlib import Path

import torch

from equilibrate.study.choose import Chooser
from equilibrate.study.contenders import find_method
from equilibrate.study.methods import METHODS
from equilibrate.study.search import random_search, successive_halving
from equilibrate.study.study import run_study
from equilibrate.study.trial import Trial
from tests.study import stacks

EPOCHS = 3
NADAM = "torch.optim:NAdam"
SETTINGS = {
    "sgd": [{"lr": 0.001}, {"lr": 1e30}, {"lr": 0.002}, {"lr": 0.003}],
    "esgd": [{"lr": lr, "probe_every": 4, "warmup_probes": 3} for lr in (0.02, 0.05, 0.1)],
    NADAM: [{"lr": 0.001}],  # has no stacked rule
}


def trials():
    """Three methods; the second trial of the first diverges, in a stack with the first."""
    fingerprint = stacks.regression().fingerprint
    return [
        Trial("regression", fingerprint, method, each, seed, 8, EPOCHS)
        for method, settings in SETTINGS.items()
        for seed, each in enumerate(settings)
    ]


def run(folder, *, halving=False, **options):
    """Two trials in a stack, as a study of the user's would ask for; a checkpoint at every update.

    How many is given and not measured: a study that is killed before it has noted what it measured
    measures anew, and may choose another way.
    """
    problem = replace(stacks.regression())
    methods = {**METHODS, NADAM: find_method(NADAM)}
    chooser = Chooser(problem, methods, Path(folder), torch.device("cpu"), at_once=2)
    return run_study(
        problem,
        trials(),
        folder,
        make_trainer=chooser.make_trainer,
        together=chooser.together,
        search=successive_halving(EPOCHS, 3) if halving else random_search(EPOCHS),
        checkpoint_seconds=0,
        **options,
    )
