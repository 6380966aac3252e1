"""A quadratic saddle f(x) = x'Hx/2 and the paths of gradient descent and Newton's method on it."""

import torch
from torch import Tensor

from equilibrate.exact import newton_step


def rotated(curvatures: tuple[float, float], degrees: float) -> Tensor:
    """Return the symmetric 2 x 2 matrix with these eigenvalues, its axes turned by an angle."""
    angle = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    cos, sin = torch.cos(angle), torch.sin(angle)
    turn = torch.stack([torch.stack([cos, -sin]), torch.stack([sin, cos])])
    return turn @ torch.diag(torch.tensor(curvatures, dtype=torch.float64)) @ turn.T


def value(matrix: Tensor, points: Tensor) -> Tensor:
    """Return f at every point of a (..., 2) tensor."""
    return 0.5 * torch.einsum("...i,ij,...j->...", points, matrix, points)


def descend(matrix: Tensor, start: Tensor, rate: float, steps: int) -> Tensor:
    """Return the path of gradient descent, (steps + 1, ..., 2); starts may be stacked."""
    path = [start]
    for _ in range(steps):
        path.append(path[-1] - rate * path[-1] @ matrix)
    return torch.stack(path)


def newton(matrix: Tensor, start: Tensor, rate: float, steps: int) -> Tensor:
    """Return the path of Newton's method, whose step is -rate H^-1 g = -rate x on a quadratic."""
    path = [start]
    for _ in range(steps):
        gradient = path[-1] @ matrix
        path.append(path[-1] + rate * newton_step(matrix, gradient))
    return torch.stack(path)


def steps_to(values: Tensor, level: float) -> Tensor:
    """Return the first step whose value is below a level, along dimension 0; -1 where none is."""
    below = values < level
    return torch.where(below.any(0), below.int().argmax(0), -1)
