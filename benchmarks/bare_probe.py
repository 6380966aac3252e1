"""The least that a probe can cost: the double backward by itself, with no optimizer around it.

    python -m benchmarks.bare_probe --device cpu --clock process

c = (loss, gradient with its graph and product - gradient) / iteration of SGD. An optimizer that
probes once in 20 iterations costs at least 1 + c / 20 of them, and its update on top of that.
"""

import argparse
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.loops import EVERY, Plain, twice_differentiable
from benchmarks.measure import CLOCKS, interleaved
from benchmarks.models import MODELS, Problem
from equilibrate import draw


def calls(problem: Problem) -> dict[str, Callable[[], object]]:
    """Return an iteration of SGD, a gradient, and a gradient with a product."""
    parameters = problem.parameters()
    loop = Plain(problem, lambda p: torch.optim.SGD(p, lr=1e-6))
    vectors = draw("rademacher", parameters)

    def gradient() -> None:
        torch.autograd.grad(problem.loss(1.0), parameters)

    def product() -> None:
        with twice_differentiable(problem.attends):
            loss = problem.loss(1.0)
        gradients = torch.autograd.grad(loss, parameters, create_graph=True)
        torch.autograd.grad(gradients, parameters, vectors)

    return {"SGD": loop.iterate, "gradient": gradient, "product": product}


def cost(found: dict[str, list[float]]) -> float:
    """Return c from the times of many rounds."""
    time = {name: median(times) for name, times in found.items()}
    return (time["product"] - time["gradient"]) / time["SGD"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seconds", type=float, default=10.0, help="for each model")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.set_float32_matmul_precision("high")
    print(f"| model | c, bare | 1 + c / {EVERY} | rounds |\n| --- | --- | --- | --- |")
    for model in given.models:
        runs = calls(MODELS[model](device, device.type == "cpu"))
        for run in runs.values():
            run()
        found = interleaved(runs, device, given.seconds, clock=given.clock)
        c, rounds = cost(found), len(found["SGD"])
        print(f"| {model} | {c:.2f} | {1 + c / EVERY:.3f} | {rounds} |", flush=True)


if __name__ == "__main__":
    main()
