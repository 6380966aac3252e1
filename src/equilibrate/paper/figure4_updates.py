"""Distances between the updates that diagonals give: g / (D + damping), not the diagonals alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from equilibrate.paper.figure4_estimates import Distances, Folds, cosine_distance


@dataclass(frozen=True)
class RMSPropStep:
    """What RMSProp would divide the next gradient by: it folds it in first."""

    square_avg: Tensor
    alpha: float
    eps: float

    def divisor(self, gradient: Tensor) -> Tensor:
        """Return sqrt(E[g^2]) + eps with this gradient among the others."""
        mean = self.alpha * self.square_avg + (1 - self.alpha) * gradient.square()
        return mean.sqrt() + self.eps


def directions(folds: Folds, gradients: Tensor, step: RMSPropStep, damping: float) -> Distances:
    """Return the distances between updates g / (D + damping) and to g, means over gradients.

    `gradients` (batches, trials, elements) are of single batches, as updates are.
    """
    equilibration = (folds.squares.sum(0) / folds.probes).sqrt() + damping
    jacobi = folds.signed.sum(0).abs() / folds.probes + damping
    found = [_directions(g, step.divisor(g), equilibration, jacobi) for g in gradients]
    return {pair: torch.stack([each[pair] for each in found]).mean(0) for pair in found[0]}


def _directions(gradient: Tensor, rmsprop: Tensor, rows: Tensor, diagonal: Tensor) -> Distances:
    r, e, j = gradient / rmsprop, gradient / rows, gradient / diagonal
    return {
        "rmsprop_equilibration": cosine_distance(r, e),
        "rmsprop_jacobi": cosine_distance(r, j),
        "equilibration_jacobi": cosine_distance(e, j),
        "rmsprop_gradient": cosine_distance(r, gradient),
        "equilibration_gradient": cosine_distance(e, gradient),
    }
