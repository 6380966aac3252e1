"""A study whose trials all train in one stack, with its progress on the screen.

On a CPU they train one after the other: a stack of such networks takes longer there.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from equilibrate.paper.records import AT_ONCE
from equilibrate.study.alone import Alone
from equilibrate.study.course import Moment, Trainer
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

    width = AT_ONCE if device.type == "cuda" else 1

    def make_trainer(members: list[Trial]) -> Trainer:
        if width > 1:
            return Stack(problem, methods, members, device)
        method = methods if isinstance(methods, Method) else methods[members[0].method]
        return Alone(problem, method, members, device)

    run_study(
        problem,
        trials,
        folder,
        make_trainer=make_trainer,
        together=lambda members: [members[k : k + width] for k in range(0, len(members), width)],
        evaluate_every=evaluate_every,
        report=report,
        device=device,
        mixed=width > 1,
    )
