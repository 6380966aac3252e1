"""Diagonals known by probes alone: bounds and repairs against exact ones, many repeats at once.

A repeat is a trial of the estimator's own: the laws speak of expectations, so that every test
compares the mean over repeats with the truth, within four of its standard errors.
"""

import pytest
import torch

from equilibrate.paper import figure4_estimates as estimates
from equilibrate.paper.figure4_estimates import Folds
from equilibrate.paper.figure4_spectrum import spectrum
from equilibrate.paper.figure4_updates import RMSPropStep, directions

N, REPEATS, FOLDS = 40, 400, 10
ERRORS = 4


def _matrix(kind):
    generator = torch.Generator().manual_seed(3)
    raw = torch.randn(N, N, generator=generator, dtype=torch.float64)
    scales = torch.logspace(-1, 1, N, dtype=torch.float64)
    symmetric = (raw + raw.T) / 2
    return {
        "random": symmetric,
        "scaled": scales[:, None] * symmetric * scales,
        "dominant": symmetric / 2 + torch.diag(scales),
    }[kind]


def _probed(matrix, probes, between=0.0):
    """Sums over probes of every repeat; `between` is how far the batches' Hessians differ."""
    generator = torch.Generator().manual_seed(probes)
    shape = (probes, REPEATS, N)
    v = torch.randint(2, shape, generator=generator).double() * 2 - 1
    products = v @ matrix
    if between:
        # One random row-independent matrix a probe, applied without being formed for each repeat.
        other = torch.randn(probes, REPEATS, N, N, generator=generator) * between
        products = products + torch.einsum("krij,krj->kri", other, v.float()).double()
    g = torch.randn(shape, generator=generator, dtype=torch.float64)
    parts = [v * products, products.square(), g.square()]
    members = [list(range(fold, probes, FOLDS)) for fold in range(FOLDS)]
    sums = [torch.stack([part[chosen].sum(0) for chosen in members]) for part in parts]
    return Folds(*sums, tuple(map(len, members)), (N // 4, N - N // 4))


def _off(values, truth):
    """How many standard errors the mean over repeats lies above the truth."""
    return (values.mean(0) - truth) / (values.std(0) / len(values) ** 0.5)


KINDS = ("random", "scaled", "dominant")


@pytest.mark.parametrize("probes", [25, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_the_norm_of_the_diagonal_has_no_bias(kind, probes):
    matrix = _matrix(kind)
    folds = _probed(matrix, probes)
    found = estimates.diagonal_squares(folds)
    h = matrix.diagonal()
    truth = torch.stack([h[: N // 4].square().sum(), h[N // 4 :].square().sum()])
    assert (_off(found, truth).abs() < ERRORS).all()
    plain = (folds.signed.sum(0) / probes).square().sum(-1)
    assert _off(plain, truth.sum()) > ERRORS  # what is repaired can be seen here


@pytest.mark.parametrize("kind", KINDS)
def test_the_root_has_no_bias_that_forty_probes_show(kind):
    matrix = _matrix(kind)
    folds = _probed(matrix, 40)
    truth = matrix.norm(dim=1)
    repaired = _off(estimates.root(folds.squares, folds.counts).sum(-1), truth.sum())
    plain = _off((folds.squares.sum(0) / 40).sqrt().sum(-1), truth.sum())
    assert abs(repaired) < ERRORS
    assert abs(repaired) < abs(plain) / 2


def test_the_root_holds_the_variance_between_batches():
    matrix, between = _matrix("random"), 0.5
    folds = _probed(matrix, 20, between)
    truth = (matrix.square().sum(1) + N * between**2).sqrt()
    # Twenty probes leave a bias of the order 1/20^2 of every root.
    room = truth.sum() / 20**2
    found = estimates.root(folds.squares, folds.counts).sum(-1)
    assert abs(found.mean() - truth.sum()) < ERRORS * found.std() / REPEATS**0.5 + room
    assert found.mean() - matrix.norm(dim=1).sum() > 10 * room
    unseen = estimates.diagonal_squares(folds).sum(-1)  # Jacobi's does not hold it
    assert abs(_off(unseen, matrix.diagonal().square().sum())) < ERRORS


@pytest.mark.parametrize("probes", [20, 80])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_and_the_value_beats_the_literal_one(kind, probes):
    matrix = _matrix(kind)
    h, rows = matrix.diagonal().abs(), matrix.norm(dim=1)
    rmsprop = torch.rand(N, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    folds = _probed(matrix, probes)
    low = estimates.least([rmsprop] * FOLDS, folds.signed, folds.counts)
    high = estimates.greatest(rmsprop, folds.signed, folds.counts)
    truth = rmsprop @ h
    assert _off(low, truth) < ERRORS
    assert _off(high, truth) > -ERRORS
    if probes == 80 and kind == "dominant":
        free = estimates.noise_free(folds, rmsprop.expand(REPEATS, -1))
        plain = estimates.literal(folds, rmsprop.expand(REPEATS, -1))
        for pair, a, b in (("rmsprop_jacobi", rmsprop, h), ("equilibration_jacobi", rows, h),
                           ("rmsprop_equilibration", rmsprop, rows)):  # fmt: skip
            exact = estimates.cosine_distance(a, b)
            error = (free[pair].value.nanmean() - exact).abs()
            assert error < 0.5 * (plain[pair].mean() - exact).abs() + 1e-3, pair


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_close_as_probes_are_added(kind):
    weights = torch.ones(N, dtype=torch.float64)
    gaps = []
    for probes in (20, 80, 320):
        folds = _probed(_matrix(kind), probes)
        low = estimates.least([weights] * FOLDS, folds.signed, folds.counts)
        gaps.append((estimates.greatest(weights, folds.signed, folds.counts) - low).mean())
    assert gaps[0] > gaps[1] > gaps[2] > 0


def test_noise_alone_is_as_far_from_equilibration_as_is_said():
    from equilibrate.paper.figure4_judging import FLOOR

    matrix = _matrix("random")
    matrix = matrix - torch.diag(matrix.diagonal())
    probes = 80
    folds = _probed(matrix, probes)
    found = estimates.literal(folds, torch.ones(REPEATS, N, dtype=torch.float64))
    # Equilibration's own noise adds about 1 / (4 k).
    distance = found["equilibration_jacobi"]
    room = ERRORS * distance.std() / REPEATS**0.5 + 1 / (2 * probes)
    assert distance.mean() == pytest.approx(FLOOR, abs=float(room))
    assert abs(_off(estimates.noise_share(folds), 1.0)) < ERRORS


def test_equal_updates_have_no_distance_and_rmsprop_counts_the_gradient():
    folds = _probed(_matrix("random"), 20)
    g = torch.randn(3, REPEATS, N, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = (folds.squares.sum(0) / 20).sqrt()
    same = RMSPropStep(rows.square(), alpha=1.0, eps=0.1)
    found = directions(folds, g, same, damping=0.1)
    assert found["rmsprop_equilibration"].abs().max() < 1e-12
    signs = RMSPropStep(rows, alpha=0.0, eps=0.0)  # g / |g|
    assert torch.equal((g[0] / signs.divisor(g[0])).round(), g[0].sign())


@pytest.mark.parametrize("kind", KINDS)
def test_lanczos_finds_the_extremes_and_never_oversteps_them(kind):
    matrix = _matrix(kind)
    values = torch.linalg.eigvalsh(matrix)
    start = torch.randn(3, N, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    whole = spectrum(lambda v: v @ matrix, start, steps=N)
    room = 1e-10 * float(values.abs().max())
    assert (whole.least - values[0]).abs().max() < room
    assert (whole.greatest - values[-1]).abs().max() < room
    short = spectrum(lambda v: v @ matrix, start, steps=6)
    assert (short.least >= values[0] - room).all()
    assert (short.greatest <= values[-1] + room).all()


def test_a_positive_definite_matrix_has_no_negative_share():
    matrix = _matrix("random")
    start = torch.ones(1, N, dtype=torch.float64)
    assert spectrum(lambda v: v @ matrix @ matrix, start, 12).negative_share == 0
    assert spectrum(lambda v: -(v @ matrix @ matrix), start, 12).negative_share == 1
