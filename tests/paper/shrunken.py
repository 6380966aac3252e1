"""Figures small enough for tests, and a command that runs on them."""

from dataclasses import replace
from functools import partial

from equilibrate.paper import (
    demonstration,
    figure1,
    figure2,
    figure3,
    figure4,
    figures,
    momentum,
    robustness,
    robustness_points,
)
from equilibrate.study.problem import Problem
from tests.study.stacks import dense

# Text from settings must reach the page as text: this one would run if it did not.
HOSTILE = '<script>console.error("injected")</script><img src=x onerror="console.error(1)">'


def small(name: str) -> Problem:
    """Return an auto-encoder of a thousand weights under the name of a large problem."""
    return replace(dense(), name=name)


PROBLEMS = {
    "curves-like": lambda folder: small("CURVES-like"),
    "mnist": lambda folder: small("MNIST"),
}
FIGURE3 = figure3.Settings(
    tasks=(
        figure3.Task("mnist", 2, 3, ("sgd", "rmsprop", "jacobi", "esgd")),
        figure3.Task("curves-like", 2, 2, ("sgd", "rmsprop", "jacobi", "esgd-warm", "esgd")),
    ),
    trials=2,
    seeds=2,
    precision="float32",
    timed_together=1,
)


FIGURE4 = figure4.Settings(
    tasks=(figure4.Task("mnist", 2, 1, (1, 2)), figure4.Task("curves-like", 2, 1, (1, 2))),
    probes=8, counts=(8, 16), folds=4, lanczos_steps=4, lanczos_batches=2, seeds=2,
    precision="float32",
)  # fmt: skip
ROBUSTNESS = replace(
    robustness.settings(True),
    task=robustness_points.Task("mnist", 1, 0.03),
    second=None,
    warmups=(1, 3),
    timing=robustness_points.Timing(together=1, rounds=3, every=(1, 20)),
)
MOMENTUM = momentum.Settings(
    tasks=(momentum.Task("mnist", (1, 3), 4, 1), momentum.Task("curves-like", (1, 2), 3, 1)),
    rates=1,
    rounds=1,
    seeds=2,
    precision="float32",
    timed_together=1,
)
TRAINING = {
    "figure3": (figure3, FIGURE3),
    "figure4": (figure4, FIGURE4),
    "robustness": (robustness, ROBUSTNESS),
    "momentum": (momentum, MOMENTUM),
}


def shrink() -> None:
    """Replace the settings of every figure by tiny ones, in this process."""
    small = {
        "demonstration": demonstration.Settings(images=60, epochs=2, batch=20, sizes=(784, 8, 784)),
        "figure1": figure1.Settings(starts=20),
        "figure2": figure2.Settings(("main", "small"), problems=8, other_problems=4, hidden=6,
                                    chunk=2),
    }  # fmt: skip
    for name, settings in small.items():
        figure = figures.FIGURES[name]
        figures.FIGURES[name] = replace(figure, settings=lambda quick, s=settings: s)
    for name, (module, settings) in TRAINING.items():
        figures.FIGURES[name] = replace(
            figures.FIGURES[name],
            settings=lambda quick, s=settings: s,
            compute=partial(module.compute, problems=PROBLEMS),
        )


if __name__ == "__mp_main__":  # a process that computes a part
    shrink()

if __name__ == "__main__":
    import os
    import sys
    import time

    from equilibrate.cli import main

    shrink()
    measure = figure2.measure

    def slow(size, seed):
        time.sleep(float(os.environ.get("SECONDS_A_PROBLEM", "0")))
        return measure(size, seed)

    figure2.measure = slow
    sys.exit(main())
