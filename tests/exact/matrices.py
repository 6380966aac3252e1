"""The symmetric matrices that every theorem runs over, in double precision.

Four kinds, at several sizes and seeds: definite, indefinite, badly scaled (S R S with S spread over
`decades` powers of ten), and nearly singular (one eigenvalue a millionth of the others).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

DOUBLE = torch.float64
EPS = torch.finfo(DOUBLE).eps


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=DOUBLE, generator=generator(seed))


def indefinite(size: int, seed: int) -> Tensor:
    """(R + R^T) / sqrt(2), R normal: as many positive as negative eigenvalues."""
    r = normal(size, size, seed=seed)
    return (r + r.T) / math.sqrt(2)


def definite(size: int, seed: int) -> Tensor:
    """R R^T / N with R of shape (N, 2 N): condition number near 34."""
    r = normal(size, 2 * size, seed=seed)
    return r @ r.T / size


def scales(size: int, decades: float, seed: int) -> Tensor:
    """10^u, u uniform over an interval `decades` long about zero."""
    u = torch.rand(size, dtype=DOUBLE, generator=generator(1000 + seed)) - 0.5
    return 10 ** (decades * u)


def badly_scaled(matrix: Tensor, decades: float, seed: int) -> Tensor:
    """S H S: the Hessian after each parameter is measured in a unit of its own."""
    s = scales(len(matrix), decades, seed)
    return s[:, None] * matrix * s


def orthogonal(size: int, seed: int) -> Tensor:
    return torch.linalg.qr(normal(size, size, seed=seed))[0]


def with_spectrum(values: Tensor, seed: int) -> Tensor:
    q = orthogonal(len(values), seed)
    matrix = (q * values) @ q.T
    return (matrix + matrix.T) / 2


def nearly_singular(size: int, seed: int) -> Tensor:
    """Eigenvalues of both signs and sizes near one, but for one of 1e-6."""
    values = torch.linspace(0.5, 1.5, size, dtype=DOUBLE) * (-1.0) ** torch.arange(size)
    values[0] = 1e-6
    return with_spectrum(values, seed)


@dataclass(frozen=True)
class MatrixCase:
    name: str
    matrix: Tensor
    definite: bool = False


SIZES = [2, 5, 20]
SEEDS = [0, 1]
MATRICES = [
    MatrixCase(f"{kind}-{n}-{seed}", make(n, seed), kind.endswith(" definite"))
    for kind, make in {
        "plain definite": definite,
        "indefinite": indefinite,
        "badly scaled definite": lambda n, s: badly_scaled(definite(n, s), 4, s),
        "badly scaled indefinite": lambda n, s: badly_scaled(indefinite(n, s), 4, s),
        "nearly singular": nearly_singular,
    }.items()
    for n in SIZES
    for seed in SEEDS
]
