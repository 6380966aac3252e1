"""How right differences of gradients are: H v by closure against the exact product, by step.

    python -m benchmarks.difference_error

For every model of the speed benchmarks (small versions, float32, at the start) the relative error
of one product at several steps, in units of the parameters' root mean square, and how far it moves
when the step is doubled, which is what `step(closure)` chooses its step by.
"""

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.models import MODELS, Problem
from equilibrate import LossHessian, draw
from equilibrate.curvature.differences import difference_product, parameter_size, relative_step

OWN = relative_step(torch.float32)


class Gradients:
    """The gradient of a problem's loss as a function of its parameters."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.parameters = problem, problem.parameters()

    @torch.no_grad()
    def _set(self, values: Sequence[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value)

    def __call__(self, values: Sequence[Tensor]) -> Sequence[Tensor]:
        self._set(values)
        return torch.autograd.grad(self.problem.loss(1.0), self.parameters)


def apart(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """Return |first - second| / |second| over all tensors."""
    one, other = (torch.cat([t.reshape(-1) for t in tensors]) for tensors in (first, second))
    return float((one - other).norm() / other.norm())


def measure(model: str, relative: Sequence[float]) -> list[str]:
    """Return a cell for every step: the error, and how much doubling the step changes."""
    torch.manual_seed(0)
    problem = MODELS[model](torch.device("cpu"), True)
    gradients, vectors = Gradients(problem), draw("rademacher", problem.parameters())
    with sdpa_kernel(SDPBackend.MATH):
        exact = LossHessian(problem.loss(1.0), problem.parameters())(vectors)
    point = [p.detach().clone() for p in problem.parameters()]
    size = parameter_size(point)

    def product(step: float) -> list[Tensor]:
        return difference_product(gradients, point, vectors, step=step * size)

    cells = []
    for step in relative:
        one, two = product(step), product(2 * step)
        cells.append(f"{apart(one, exact):.2g} ({apart(one, two):.2g})")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    given = parser.parse_args()
    steps = [OWN / 1000, OWN / 100, OWN / 10, OWN, 10 * OWN]
    print("| error (moved by) at | " + " | ".join(f"{step:.2g}" for step in steps) + " |")
    print("| --- " * (1 + len(steps)) + "|")
    for model in given.models:
        print(f"| {model} | " + " | ".join(measure(model, steps)) + " |", flush=True)


if __name__ == "__main__":
    main()
