"""How fast the stack of a whole study trains: the trials of several methods in one update.

    python -m benchmarks.mixed_speed --data FOLDER [--study damped] [--task mnist] [--joined no yes]

Every setting of the study at seed 0, in one stack. For each way of compiling: microseconds of an
update and, on a GPU, the launches of one between two probes and the time in which any of them ran.
`--joined no` leaves kernels that do not need each other apart.
"""

import argparse
import time
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import torch

from equilibrate.paper import figure3, momentum
from equilibrate.paper.arm_plan import ArmSearch
from equilibrate.paper.figures import FIGURES
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.stack import Stack
from equilibrate.study.trial import Trial

STUDIES = {"figure3": figure3, "momentum": momentum, "falling": momentum, "damped": momentum}
WARM, TIMED, ROUNDS, PROFILED = 60, 100, 5, 5


def search_of(study: str, task: str) -> ArmSearch:
    """Return what a study trains on a task."""
    chosen = FIGURES[study].settings(False)
    (own,) = (each for each in chosen.tasks if each.problem == task)
    return STUDIES[study]._searched(chosen, own)


def trials(asked: ArmSearch, problem: Problem, precision: str) -> list[Trial]:
    """Return every setting of a study, those of one method side by side."""
    what, size = (problem.name, "-"), problem.batch_size
    return [
        Trial(*what, arm, own, 0, size, asked.search.rungs[-1], precision)
        for arm in asked.arms
        for each in asked.rounds
        for own in each.get(arm, ())
    ]


def timed(stack: Stack) -> float:
    """Return the microseconds of an update, the median of some rounds."""
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        stack.advance(TIMED)
        found.append((time.perf_counter() - started) / TIMED * 1e6)
    return sorted(found)[ROUNDS // 2]


def launches(stack: Stack) -> tuple[float, float]:
    """Return how many kernels an update between two probes has, and how long any of them ran."""
    plain = (None,) * len(stack.blocks)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as record:
        for _ in range(PROFILED):
            stack._update_captured(plain)
        torch.cuda.synchronize()
    kernels = [e for e in record.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    spans = sorted((e.time_range.start, e.time_range.end) for e in kernels)
    busy, last = 0.0, 0.0
    for start, end in spans:
        busy += max(0.0, end - max(start, last))
        last = max(last, end)
    return len(spans) / PROFILED, busy / PROFILED


def main() -> None:
    """Print a row for each way of compiling."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--study", choices=list(STUDIES), default="damped")
    parser.add_argument("--task", default="mnist")
    parser.add_argument("--joined", nargs="+", choices=("no", "yes"), default=["yes"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    device, problem = torch.device(given.device), BUILT_IN[given.task](given.data)
    precision = "tf32" if device.type == "cuda" else "float32"
    asked = search_of(given.study, given.task)
    for joined in given.joined:
        with ExitStack() as leaving:
            if joined == "no":
                leaving.enter_context(patch("equilibrate.study.fused.JOINED", False))
            stack = Stack(problem, asked.methods, trials(asked, problem, precision), device)
            stack.advance(WARM)
            told = f"{given.study}, {given.task}, {len(stack.trials)} trials, joined: {joined}"
            print(f"{told}: {timed(stack):.0f} us an update", end="", flush=True)
            counted = launches(stack) if device.type == "cuda" else None
            print(f", {counted[0]:.0f} launches, busy {counted[1]:.0f} us" if counted else "")
        torch.compiler.reset()


if __name__ == "__main__":
    main()
