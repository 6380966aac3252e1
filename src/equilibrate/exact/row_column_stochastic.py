"""Row-and-column equilibration from products with H alone (Bradley 2011), without the matrix.

At the present scaling E[(H D^-1/2 v)_i^2] = sum_j H_ij^2 / d_j, the norm that the iteration of
`row_column.py` divides by. Two phases use it. The *approach* repeats the exact round, each with a
few probes: it forgets any start, but stays noisy. The *average* then takes one probe at a time,

    d <- (1 - w) d + w (H D^-1/2 v)^2,        w = 2 / (k + 2 n),

k = 1, 2, ... and n the probes of a round before it, so that the noise settles.

Departs from Bradley in two ways. His weight stops falling at 1/32, so that d never settles; ours
goes on. And he divides d and the squares by their sums at each probe, which is a bias (a mean of
quotients is not the quotient of means) where a few parameters dominate the sum; here nothing needs
it, for the approach finds the common factor.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from equilibrate.curvature import Distribution, draw
from equilibrate.curvature.estimate import Estimate, HessianOperator
from equilibrate.exact import checks
from equilibrate.exact.norms import norm
from equilibrate.exact.row_column import NO_SCALING

ROUNDS = 12  # the approach halves the error this often: a factor of 4,000
SHARE = 4  # it takes one probe in four


def row_column_stochastic(
    product: HessianOperator,
    like: Sequence[Tensor],
    *,
    probes: int = 1000,
    distribution: Distribution = "gaussian",
    seed: int = 0,
) -> Estimate:
    """Estimate d such that D^-1/2 H D^-1/2 has unit rows and columns, from products with H.

    How near: with k normal probes the rows of the scaled matrix have norms within about 1/sqrt(k)
    of one, in the root mean square. (Linear weights over three quarters of the probes keep 9/16 of
    k, and a square of a normal has relative variance 2: sqrt(2 16/9 / k) for the squared norm, half
    of it, 0.94/sqrt(k), for the norm.) That is where B of `row_column.py`, less its eigenvalue one,
    is small; a matrix that falls into pairs of parameters needs more.

    `product` maps a list of tensors shaped as `like` to the list of their products with H, such
    as `LossHessian(loss, parameters)`.

    Example:
        >>> matrix = torch.tensor([[400.0, 1.0], [1.0, 0.01]], dtype=torch.float64)
        >>> found = row_column_stochastic(lambda v: [matrix @ v[0]], [matrix[0]], probes=4000)
        >>> scaled = matrix / found.value[0].outer(found.value[0]).sqrt()
        >>> bool((scaled.norm(dim=1) - 1).abs().max() < 4 / 4000**0.5)
        True
    """
    each = probes // (SHARE * ROUNDS)
    if each < 4:
        raise ValueError(f"probes must be at least {4 * SHARE * ROUNDS}, got {probes}")
    shapes = [p.detach() for p in like]
    remaining = probes - each * ROUNDS
    numbers = iter(range(probes))

    def products(root: list[Tensor]) -> list[Tensor]:
        vectors = draw(distribution, shapes, seed=seed, probe=next(numbers))
        return list(product([v / r for v, r in zip(vectors, root, strict=True)]))

    diagonal = _approach(products, [torch.ones_like(p) for p in shapes], each)
    error = _average_(products, diagonal, remaining, each)
    return Estimate(diagonal, error, probes)


Products = Callable[[list[Tensor]], list[Tensor]]  # the root of d to H D^-1/2 v


def _approach(products: Products, root: list[Tensor], each: int) -> list[Tensor]:
    """Repeat the exact round d <- sqrt(d E[(H D^-1/2 v)^2]); the first starts from E[(H v)^2].

    In terms of the root of d, r <- sqrt(r sqrt(E[(H v / r)^2])): the first d, like the squared row
    norms that it estimates, may have no place in the range of a float.
    """
    for number in range(ROUNDS):
        samples = zip(*(products(root) for _ in range(each)), strict=True)
        sizes = [norm(torch.stack(parts), dim=0) / math.sqrt(each) for parts in samples]
        _check(sizes)
        root = [(r * s).sqrt() if number else s for r, s in zip(root, sizes, strict=True)]
    return [r.square() for r in root]


def _average_(
    products: Products, diagonal: list[Tensor], remaining: int, each: int
) -> list[Tensor]:
    """Average the remaining probes in, in place; return the standard error.

    Linear weights over K probes have variance 4/3 of the plain mean's, sigma^2 / K, with sigma the
    relative spread of one square, measured on the way.
    """
    spread = [torch.zeros_like(d) for d in diagonal]
    for k in range(1, remaining + 1):
        weight = 2 / (k + 2 * each)
        found = products([d.sqrt() for d in diagonal])
        for d, s, hv in zip(diagonal, spread, found, strict=True):
            new = hv.square()
            s.lerp_((new / d - 1).square(), weight)
            d.lerp_(new, weight)
    _check(diagonal)
    return [d * (s * 4 / (3 * remaining)).sqrt() for d, s in zip(diagonal, spread, strict=True)]


def _check(diagonal: list[Tensor]) -> None:
    """Raise ValueError for what no scaling can mend."""
    for d in diagonal:
        checks.finite(d, "the product with H")
        if bool((d == 0).any()):
            raise ValueError(NO_SCALING)
