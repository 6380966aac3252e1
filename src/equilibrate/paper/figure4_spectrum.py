"""Negative curvature along training: Ritz values of every trial's Hessian at once (Lanczos 1950).

Every Ritz value is x'Hx of a unit vector x that the iteration built, so a negative one is a proof:
the least eigenvalue is at most that. With a random start the squared first components weigh the
Ritz values as the spectrum's density does (Golub & Meurant 1994), which gives the share of negative
curvature, sum of |negative eigenvalues| / sum of |eigenvalues|, to the accuracy of one start.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]  # of vectors (trials, elements)


@dataclass(frozen=True)
class Spectrum:
    """Of every trial: extreme Ritz values and the share of negative curvature."""

    least: Tensor
    greatest: Tensor
    negative_share: Tensor


def spectrum(product: Product, start: Tensor, steps: int) -> Spectrum:
    """Run Lanczos from a start (trials, elements), with full orthogonalisation against its past.

    Example:
        >>> diagonal = torch.tensor([[-1.0, 2.0, 3.0]])
        >>> found = spectrum(lambda v: diagonal * v, torch.ones(1, 3), steps=3)
        >>> [round(float(x), 4) for x in (found.least, found.greatest, found.negative_share)]
        [-1.0, 3.0, 0.1667]
    """
    basis, diagonal, beside = [start / _length(start)], [], []
    for _ in range(steps):
        vector = product(basis[-1])
        diagonal.append(_dots(vector, basis[-1]))
        for _ in range(2):  # once leaves what float32 rounds; twice is enough (Giraud et al. 2005)
            for earlier in basis:
                vector = vector - _dots(vector, earlier).to(vector)[:, None] * earlier
        beside.append(_length(vector)[:, 0].double())
        basis.append(vector / _length(vector))
    off = torch.stack(beside[:-1], 1) if steps > 1 else start.new_zeros(len(start), 0).double()
    matrix = torch.diag_embed(torch.stack(diagonal, 1))
    matrix = matrix + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    values, vectors = torch.linalg.eigh(matrix.cpu())  # tiny
    mass = vectors[:, 0].square() * values.abs()
    negative = torch.where(values < 0, mass, 0.0).sum(1) / mass.sum(1)
    return Spectrum(values[:, 0], values[:, -1], negative)


def _dots(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, dtype=torch.float64)


def _length(a: Tensor) -> Tensor:
    return _dots(a, a).sqrt().clamp(min=torch.finfo(torch.float32).tiny).to(a)[:, None]
