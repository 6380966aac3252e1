"""Sections 4 and 6, estimates from products: rows T16, T17 and T21 of the claims.

A mean over k draws is compared with its derived value in units of its derived (or measured)
standard error. Five of them are passed by chance once in 1.7 million comparisons; the tests make a
few thousand, all with fixed seeds.
"""

import math

import pytest
import torch

from equilibrate import exact
from equilibrate.curvature import draw_elements
from tests.exact.matrices import DOUBLE, MATRICES, generator, indefinite, normal

DRAWS = 20_000
LIMIT = 5.0


def _library(name):
    def vectors(size, seed):
        probes = torch.arange(DRAWS)
        return draw_elements(name, 0, size, seed=seed, probe=probes, parameter=0).to(DOUBLE)

    return vectors


def _uniform(size, seed):
    unit = torch.rand(DRAWS, size, dtype=DOUBLE, generator=generator(seed))
    return math.sqrt(12) * (unit - 0.5)


def _three_valued(size, seed):
    """Zero with probability 2/3, else +-sqrt(3)."""
    face = torch.randint(0, 6, (DRAWS, size), generator=generator(seed))
    return math.sqrt(3) * ((face == 0).to(DOUBLE) - (face == 1).to(DOUBLE))


# Vectors with zero mean, unit variance and independent entries, and their excess kurtosis.
DISTRIBUTIONS = {
    "gaussian": (_library("gaussian"), 0.0),
    "rademacher": (_library("rademacher"), -2.0),
    "uniform": (_uniform, -1.2),
    "three-valued": (_three_valued, 0.0),
}


def _within(mean, truth, error, scale):
    """Are all means within LIMIT standard errors (and rounding, relative to `scale`)?"""
    return bool(((mean - truth).abs() <= LIMIT * error + 1e-9 * scale).all())


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("case", MATRICES, ids=lambda c: c.name)
def test_t16_the_squared_product_is_unbiased(case, name):
    """E[(Hv)_i^2] = r_i^2, with variance 2 r_i^4 + c sum_j H_ij^4, c the excess kurtosis of v."""
    draws, kurtosis = DISTRIBUTIONS[name]
    squares = (draws(len(case.matrix), 3) @ case.matrix).square()
    truth = exact.equilibration(case.matrix).square()
    variance = 2 * truth.square() + kurtosis * case.matrix.pow(4).sum(-1)
    error = (variance.clamp(min=0) / DRAWS).sqrt()
    assert _within(squares.mean(0), truth, error, truth)
    # The errors are no mere formality: they would see a bias of a tenth.
    wide = error > 1e-3 * truth
    assert not _within(1.1 * squares.mean(0)[wide], truth[wide], error[wide], 0) or not wide.any()


def test_t16_zero_mean_and_unit_variance_are_not_enough():
    """The footnote forgets that entries must be uncorrelated: one sign for all gives row sums."""
    matrix = indefinite(5, 0)
    sign = _library("rademacher")(1, 0)
    squares = (sign.expand(DRAWS, 5) @ matrix).square().mean(0)
    torch.testing.assert_close(squares, matrix.sum(-1).square())
    truth = exact.equilibration(matrix).square()
    assert float(((squares - truth) / truth).abs().max()) > 0.5


class _Samples:
    """The Hessian of each of n = 12 samples, of a 3-3-1 tanh network with a squared loss."""

    def __init__(self) -> None:
        x, y, theta = normal(12, 3, seed=1), normal(12, seed=2), normal(15, seed=3)

        def loss(t, x, y):
            hidden = torch.tanh(t[:9].view(3, 3) @ x + t[9:12])
            return (hidden @ t[12:] - y).square()

        per_sample = torch.func.vmap(torch.func.hessian(loss), in_dims=(None, 0, 0))
        self.hessians = per_sample(theta, x, y)
        self.mean = self.hessians.mean(0)
        self.variance = self.hessians.var(0, correction=0)

    def products(self, batch, replacement=True, seed=0):
        """DRAWS vectors, and their products each with the mean Hessian of a batch of its own."""
        v = _library("rademacher")(15, 7 + batch)
        weights = torch.ones(DRAWS, 12, dtype=DOUBLE)
        chosen = torch.multinomial(weights, batch, replacement, generator=generator(seed + batch))
        counts = torch.zeros(DRAWS, 12, dtype=DOUBLE).scatter_add_(
            1, chosen, torch.ones_like(chosen, dtype=DOUBLE)
        )
        each = torch.einsum("sij,kj->ksi", self.hessians, v)
        return v, torch.einsum("ks,ksi->ki", counts / batch, each)


SAMPLES = _Samples()


def _mean_and_error(samples):
    return samples.mean(0), samples.std(0) / math.sqrt(len(samples))


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("batch", [1, 3, 9])
def test_t17_over_batches_the_square_gains_the_variance_of_the_entries(batch, replacement):
    """v and the batch B are independent and E[v v^T] = I, so E[(H_B v)_i^2] = E sum_j H_B,ij^2

    = sum_j (E H_ij)^2 + sum_j Var(H_B,ij), where the variance is Var(H_ij)/b with replacement, and
    (n - b)/(n - 1) of that without.
    """
    share = (1.0 if replacement else (12 - batch) / 11) / batch
    truth = SAMPLES.mean.square().sum(-1) + share * SAMPLES.variance.sum(-1)
    _, products = SAMPLES.products(batch, replacement)
    mean, error = _mean_and_error(products.square())
    assert _within(mean, truth, error, truth)


def test_t17_so_the_online_diagonal_depends_on_the_batch_size():
    _, one = SAMPLES.products(1)
    _, nine = SAMPLES.products(9)
    whole = exact.equilibration(SAMPLES.mean)
    small = one.square().mean(0).sqrt() / whole
    large = nine.square().mean(0).sqrt() / whole
    assert bool((small > large).all())
    assert float(small.median()) > 1.2  # derived: 1.5 to 4.2, median 3.0 times the full-batch norm
    assert float(large.median()) < float(small.median())


@pytest.mark.parametrize("batch", [1, 3, 9])
def test_t17_and_jacobi_does_not(batch):
    """E[v * H_B v] = diag(E H) for every batch size: the estimate is linear in H."""
    v, products = SAMPLES.products(batch)
    mean, error = _mean_and_error(v * products)
    assert _within(mean, SAMPLES.mean.diagonal(), error, SAMPLES.mean.norm())


VARIANCE = {
    "rademacher": lambda h: h.square().sum(-1) - h.diagonal().square(),
    "gaussian": lambda h: h.square().sum(-1) + h.diagonal().square(),
}


@pytest.mark.parametrize("name", VARIANCE)
@pytest.mark.parametrize("case", MATRICES, ids=lambda c: c.name)
def test_t21_the_diagonal_estimate_is_unbiased_with_the_stated_variance(case, name):
    """diag(H) = E[v * Hv]; variance sum_j H_ij^2 - H_ii^2 for signs, plus instead for normals."""
    matrix = case.matrix
    v = DISTRIBUTIONS[name][0](len(matrix), 11)
    samples = v * (v @ matrix)
    variance = VARIANCE[name](matrix)
    scale = exact.equilibration(matrix)
    assert _within(samples.mean(0), matrix.diagonal(), (variance / DRAWS).sqrt(), scale)
    spread = (samples - matrix.diagonal()).square()
    mean, error = _mean_and_error(spread)
    assert _within(mean, variance, error, scale.square())
