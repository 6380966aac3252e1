"""Lanczos' recursion on H or on D^-1 H, in three vectors, whatever the number of steps.

It stands here, and not SciPy's `eigsh`, for memory: ARPACK keeps a basis of 20 vectors and four
more besides, on the CPU, where a model of 100 million parameters leaves room for five. The price is
the usual one: without reorthogonalisation a converged eigenvalue may appear twice, its weight
shared between the copies. Neither the extreme values nor the sums over the spectrum that
`spectrum.py` takes are hurt by that (Paige 1976, Greenbaum 1989); the tests hold both to the
dense answer and to `eigsh`.

D^-1 H has the eigenvalues of the symmetric D^-1/2 H D^-1/2, and is itself symmetric in the inner
product (x, y) = x^T D y. Running the recursion in that product needs no square root and no scaled
copy of any vector.

H and D are each taken in units of a power of four (`units.py`), and the nodes put back: inner
products square, and squares would overflow, or vanish, where H and D are still numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from equilibrate.curvature import draw, split_like
from equilibrate.curvature.estimate import HessianOperator
from equilibrate.monitor.blocks import total_product
from equilibrate.monitor.units import unit_of

Vector = list[Tensor]


@dataclass(frozen=True)
class Ritz:
    """What one start vector saw: nodes, their weights (they sum to one), and whether that is all.

    `exact` tells that the recursion ended by itself: the nodes are eigenvalues, all that the start
    vector has a share in. `matrix` is the recursion's tridiagonal one, whose eigenvalues the nodes
    are; its first rows are those of a shorter recursion. There is none without a recursion.
    """

    nodes: Tensor
    weights: Tensor
    exact: bool
    matrix: Tensor | None = None


def lanczos(
    hessian: HessianOperator,
    parameters: Sequence[Tensor],
    *,
    steps: int,
    diagonal: Sequence[Tensor] | None = None,
    seed: int = 0,
    start: int = 0,
) -> Ritz:
    """Run `steps` products from the normal vector number `start` of a seed.

    The nodes and weights are Gauss's quadrature for the spectral measure of D^-1/2 H D^-1/2 at that
    vector: sum_j weight_j f(node_j) = q^T f(A) q / q^T q for every polynomial f of degree below
    twice the number of nodes (Golub & Meurant 1994). `diagonal` is D, positive; None is the
    identity.

    Example:
        >>> h = torch.tensor([1.0, 2.0, -5.0])
        >>> found = lanczos(lambda v: [h * v[0]], [torch.zeros(3)], steps=3)
        >>> found.nodes.round(decimals=4)
        tensor([-5.,  1.,  2.], dtype=torch.float64)
    """
    size = sum(p.numel() for p in parameters)
    divided = 1.0 if diagonal is None else unit_of(diagonal) or 1.0
    diagonal = None if diagonal is None else _InUnits(diagonal, divided)
    u = _first(parameters, diagonal, seed, start)
    unit, ended = 0.0, False
    previous: Vector = []
    alphas: list[float] = []
    betas: list[float] = []
    for _ in range(min(steps, size)):
        w = list(hessian([x.to(p.dtype) for x, p in zip(u, parameters, strict=True)]))
        unit = unit or unit_of(w) or 1.0
        _divide(w, unit)
        alphas.append(_inner(u, w))
        _orthogonalise(w, u, previous, diagonal, alphas[-1], betas[-1] if betas else 0.0)
        betas.append(_inner(w, w, diagonal) ** 0.5)
        if ended := _ended(alphas, betas, u[0].dtype):
            break
        previous, u = u, [x.div_(betas[-1]) for x in w]
    return _ritz(alphas, betas, exact=ended, units=(unit, divided))


def exact_ritz(
    hessian: HessianOperator, parameters: Sequence[Tensor], diagonal: Sequence[Tensor] | None
) -> Ritz:
    """Return all eigenvalues of a small D^-1/2 H D^-1/2, from its product with every axis."""
    size = sum(p.numel() for p in parameters)
    rows = []
    for i in range(size):
        axis = torch.zeros(size, dtype=torch.float64)
        axis[i] = 1.0
        pieces = split_like(axis, parameters)
        given = [x.to(p) for x, p in zip(pieces, parameters, strict=True)]
        rows.append(_flat(hessian(given)))
    matrix = torch.stack(rows)
    root = torch.ones(size, dtype=torch.float64) if diagonal is None else _flat(diagonal).sqrt()
    matrix = (matrix + matrix.mT) / 2 / root / root.unsqueeze(-1)
    unit = unit_of([matrix]) or 1.0
    weights = torch.full((size,), 1.0 / size, dtype=torch.float64)
    return Ritz(torch.linalg.eigvalsh(matrix / unit) * unit, weights, exact=True)


def _flat(vector: Sequence[Tensor]) -> Tensor:
    return torch.cat([x.detach().flatten().to("cpu", torch.float64) for x in vector])


def _first(
    parameters: Sequence[Tensor], diagonal: Sequence[Tensor] | None, seed: int, start: int
) -> Vector:
    """Return D^-1/2 q / |q| for a normal q."""
    u = _wide(draw("gaussian", [p.detach() for p in parameters], seed=seed, probe=start))
    norm = _inner(u, u) ** 0.5
    for i, x in enumerate(u):
        x.div_(norm)
        if diagonal is not None:
            x.div_(diagonal[i].sqrt())
    return u


def _orthogonalise(
    w: Vector,
    u: Vector,
    previous: Vector,
    diagonal: Sequence[Tensor] | None,
    alpha: float,
    beta: float,
) -> None:
    """Replace w by D^-1 w - alpha u - beta previous, one tensor at a time."""
    for i, x in enumerate(u):
        if diagonal is not None:
            w[i] = w[i] / diagonal[i]
        w[i].sub_(x, alpha=alpha)
        if previous:
            w[i].sub_(previous[i], alpha=beta)


def _inner(first: Vector, second: Vector, diagonal: Sequence[Tensor] | None = None) -> float:
    """Return x^T D y, summed in double precision."""
    pairs = enumerate(zip(first, second, strict=True))
    if diagonal is None:
        return sum(total_product(x, y) for _, (x, y) in pairs)
    return sum(total_product(x, y, diagonal[i]) for i, (x, y) in pairs)


def _divide(products: Vector, unit: float) -> None:
    """Replace each product by itself over the unit, in float32 at least, one tensor at a time."""
    for i, x in enumerate(products):
        # Not in place: a product may be the very tensor that was multiplied.
        products[i] = x.to(torch.promote_types(x.dtype, torch.float32)) / unit


def _wide(vector: Sequence[Tensor]) -> Vector:
    """Return the vector in float32 at least."""
    return [x.to(torch.promote_types(x.dtype, torch.float32)) for x in vector]


def _ended(alphas: list[float], betas: list[float], dtype: torch.dtype) -> bool:
    """Tell whether what is left is rounding: the start vector spans no new direction."""
    scale = max(map(abs, [*alphas, *betas[:-1]]), default=0.0)
    return betas[-1] <= 10 * torch.finfo(dtype).eps * scale


def _ritz(
    alphas: list[float], betas: list[float], *, exact: bool, units: tuple[float, float]
) -> Ritz:
    """Diagonalise the small tridiagonal matrix, and put back the units of H and of D."""
    matrix = torch.diag(torch.tensor(alphas, dtype=torch.float64))
    off = torch.tensor(betas[:-1], dtype=torch.float64)
    matrix += torch.diag(off, 1) + torch.diag(off, -1)
    nodes, vectors = torch.linalg.eigh(matrix)
    unit, divided = units
    return Ritz(nodes * unit / divided, vectors[0].square(), exact, matrix * unit / divided)


class _InUnits(Sequence[Tensor]):
    """A diagonal over a number, a tensor at a time: there is no room for a second one."""

    def __init__(self, diagonal: Sequence[Tensor], unit: float) -> None:
        self._diagonal, self._unit = diagonal, unit

    def __getitem__(self, index: Any) -> Any:
        found = self._diagonal[index]
        return found if self._unit == 1 else found / self._unit

    def __len__(self) -> int:
        return len(self._diagonal)
