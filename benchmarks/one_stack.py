"""A study whose trials all train in one stack, with its progress on the screen."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from equilibrate.paper.studies import AT_ONCE
from equilibrate.study.course import Moment
from equilibrate.study.methods import Method
from equilibrate.study.problem import Problem
from equilibrate.study.stack import Stack
from equilibrate.study.study import run_study
from equilibrate.study.trial import Trial


def precision_of(device: torch.device) -> str:
    return "tf32" if device.type == "cuda" else "float32"


def train(
    problem: Problem,
    methods: Method | Mapping[str, Method],
    trials: Sequence[Trial],
    folder: Path,
    device: torch.device,
    evaluate_every: float | None = None,
) -> None:
    """Train and record what is missing."""
    shown = [0.0]

    def report(moment: Moment) -> None:
        if moment.done - shown[0] > moment.total / 50:
            shown[0] = moment.done
            print(f"{problem.name}: {moment.done / moment.total:.0%}", flush=True)

    run_study(
        problem,
        trials,
        folder,
        make_trainer=lambda members: Stack(problem, methods, members, device),
        together=lambda members: [
            members[k : k + AT_ONCE] for k in range(0, len(members), AT_ONCE)
        ],
        evaluate_every=evaluate_every,
        report=report,
        device=device,
        mixed=True,
    )
