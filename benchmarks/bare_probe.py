"""The least that a probe can cost: the double backward by itself, with no optimizer around it.

    python -m benchmarks.bare_probe --device cpu --clock process

c = (loss, gradient with its graph and product - gradient) / iteration of SGD, by torch's second
derivatives and by `LossHessian`, which has some of its own. An optimizer that probes once in 20
iterations costs at least 1 + c / 20 of them, and its update on top of that.
"""

import argparse
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.loops import EVERY, Plain, twice_differentiable
from benchmarks.measure import CLOCKS, interleaved
from benchmarks.models import MODELS, Problem
from equilibrate import LossHessian, draw


def calls(problem: Problem) -> dict[str, Callable[[], object]]:
    """Return an iteration of SGD, a gradient, and a gradient with a product, in either way."""
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

    def ours() -> None:
        LossHessian(problem.loss(1.0), parameters)(vectors, last=True)

    return {"SGD": loop.iterate, "gradient": gradient, "torch's": product, "ours": ours}


def cost(found: dict[str, list[float]], way: str) -> float:
    """Return c of one way from the times of many rounds."""
    time = {name: median(times) for name, times in found.items()}
    return (time[way] - time["gradient"]) / time["SGD"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seconds", type=float, default=10.0, help="for each model")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.set_float32_matmul_precision("high")
    print(f"| model | c, torch's | c, ours | 1 + c / {EVERY} | rounds |")
    print("| --- | --- | --- | --- | --- |")
    for model in given.models:
        runs = calls(MODELS[model](device, device.type == "cpu"))
        for run in runs.values():
            run()
        found = interleaved(runs, device, given.seconds, clock=given.clock)
        torchs, ours = cost(found, "torch's"), cost(found, "ours")
        told = f"{torchs:.2f} | {ours:.2f} | {1 + ours / EVERY:.3f} | {len(found['SGD'])}"
        print(f"| {model} | {told} |", flush=True)


if __name__ == "__main__":
    main()
