"""Section 5, non-convex problems: rows T18 to T20 of the claims."""

import math

import pytest
import torch

from equilibrate import exact
from tests.exact.matrices import DOUBLE, EPS, badly_scaled, definite, indefinite, normal


def test_t18_equilibration_is_jacobi_of_the_absolute_matrix_up_to_the_order(matrix):
    """sqrt(diag(|H|^2)) is D_E; diag(sqrt(|H|^2)) is the diagonal of |H|."""
    absolute = exact.absolute(matrix)
    # Entries of |H| are known to N eps of the largest; a small row feels that most.
    atol = 10 * len(matrix) * EPS * float(matrix.norm())
    root_outside = (absolute @ absolute).diagonal().sqrt()
    norms = exact.equilibration(matrix)
    # H^2 is known to eps ||H||^2, its root to that over the norm of the row.
    atol_root = 10 * len(matrix) * EPS * float(matrix.norm() ** 2 / norms.min())
    torch.testing.assert_close(root_outside, norms, rtol=1e-9, atol=atol_root)
    values, vectors = torch.linalg.eigh(matrix @ matrix)
    root_inside = ((vectors * values.clamp(min=0).sqrt()) @ vectors.T).diagonal()
    # A root magnifies rounding of the square to sqrt(eps).
    torch.testing.assert_close(
        root_inside, exact.jacobi(absolute), rtol=1e-9, atol=math.sqrt(atol * float(matrix.norm()))
    )


def test_t18_the_chain_of_inequalities(matrix):
    """1/||H_i|| <= 1/|H|_ii (Cauchy-Schwarz) <= (|H|^-1)_ii (Jensen, 1/x convex)."""
    values, vectors = torch.linalg.eigh(matrix)
    weights = vectors.square()
    by_norm = 1 / exact.equilibration(matrix)
    by_diagonal = 1 / (weights @ values.abs())
    by_inverse = weights @ (1 / values.abs())
    slack = 1 + 1e-6  # eigenvalues down to 1e-8 of the largest are known to 1e-7 of themselves
    assert bool((by_norm <= by_diagonal * slack).all())
    assert bool((by_diagonal <= by_inverse * slack).all())


def test_t18_read_as_an_inequality_of_diagonals_it_fails():
    """The paper's D_E <= |H|^-1_ii is about inverse diagonals: the row norm itself exceeds it."""
    matrix = torch.diag(torch.tensor([2.0, -4.0], dtype=DOUBLE))
    inverse = torch.linalg.inv(exact.absolute(matrix)).diagonal()
    assert bool((exact.equilibration(matrix) > inverse).all())


@pytest.mark.parametrize("seed", range(3))
def test_t19_the_rayleigh_quotient_is_a_weighted_mean_of_eigenvalues(matrix, seed):
    vector = normal(len(matrix), seed=seed)
    values, vectors = torch.linalg.eigh(matrix)
    found = exact.rayleigh_quotient(matrix, vector)
    along = (vectors.T @ vector).square()
    scale = float(values.abs().max())
    torch.testing.assert_close(
        found, (values * along).sum() / vector.square().sum(), rtol=1e-9, atol=1e-12 * scale
    )
    assert float(values[0]) - 1e-9 * scale <= float(found) <= float(values[-1]) + 1e-9 * scale
    # The printed sum of lambda_j q_j q_j^T v is the vector H v, not a number.
    printed = (vectors * values) @ (vectors.T @ vector)
    torch.testing.assert_close(printed, matrix @ vector, rtol=1e-9, atol=1e-11 * scale)
    assert printed.shape != found.shape


def test_t19_jacobi_and_equilibration_are_quotients_along_the_axes(matrix):
    """D_J,i = |sum_j lambda_j q_ji^2| and D_E,i = sqrt(sum_j lambda_j^2 q_ji^2), not inverses."""
    axes = torch.eye(len(matrix), dtype=DOUBLE)
    scale = float(matrix.norm())
    plain = exact.rayleigh_quotient(matrix, axes)
    torch.testing.assert_close(exact.jacobi(matrix), plain.abs())
    values, vectors = torch.linalg.eigh(matrix)
    weighted = vectors.square() @ values
    torch.testing.assert_close(plain, weighted, rtol=1e-9, atol=1e-12 * scale)
    squared = exact.rayleigh_quotient(matrix @ matrix, axes).sqrt()
    torch.testing.assert_close(exact.equilibration(matrix), squared, rtol=1e-9, atol=1e-9 * scale)


def _path(matrix, diagonal, start, rate=1.0, steps=20):
    """Sizes along theta <- theta - rate D^-1 H theta."""
    theta, sizes = start, []
    for _ in range(steps):
        theta = theta - rate * (matrix @ theta) / diagonal
        sizes.append(float(theta.norm()))
    return sizes


@pytest.mark.parametrize("cancelled", [0.3, 0.1, 0.01])
def test_t20_mixed_curvature_cancels_in_jacobi_which_diverges(cancelled):
    """[[d, 1], [1, d]]: curvatures d + 1 and d - 1, which cancel to d on the diagonal.

    From a start in the direction of POSITIVE curvature alone, where any sane descent converges,
    Jacobi multiplies the distance by 1 - (1 + d)/d = -1/d; equilibration by about -d.
    """
    matrix = torch.tensor([[cancelled, 1.0], [1.0, cancelled]], dtype=DOUBLE)
    start = torch.ones(2, dtype=DOUBLE)
    jacobi = _path(matrix, exact.jacobi(matrix), start, steps=6)
    assert jacobi[-1] == pytest.approx(cancelled**-6 * math.sqrt(2), rel=1e-6)
    equilibrated = _path(matrix, exact.equilibration(matrix), start, steps=6)
    assert equilibrated[0] < cancelled * math.sqrt(2)
    # Rounding leaves 1e-16 along the other direction, which descent rightly doubles each step.
    assert equilibrated[-1] < 1e-3


def test_t20_the_radius_after_equilibration_is_at_most_root_n(matrix):
    """rho(D_E^-1 H) <= ||D_E^-1 H||_F = sqrt(N)."""
    found = exact.spectral_radius(exact.left_scaled(matrix, exact.equilibration(matrix)))
    assert float(found) <= math.sqrt(len(matrix)) * (1 + 1e-9)


@pytest.mark.parametrize("size", [2, 9, 100])
def test_t20_the_matrix_of_ones_attains_it(size):
    ones = torch.ones(size, size, dtype=DOUBLE)
    found = exact.spectral_radius(exact.left_scaled(ones, exact.equilibration(ones)))
    assert float(found) == pytest.approx(math.sqrt(size), rel=1e-9)


def test_t20_jacobi_is_unbounded_when_indefinite_and_at_most_n_when_definite():
    radii = []
    for diagonal in (1e-1, 1e-3, 1e-6):
        matrix = torch.tensor([[diagonal, 1.0], [1.0, -diagonal]], dtype=DOUBLE)
        scaled = exact.left_scaled(matrix, exact.jacobi(matrix))
        radii.append(float(exact.spectral_radius(scaled)) * diagonal)
    assert radii == pytest.approx([1.0] * 3, abs=0.01)  # grows as 1 / diagonal
    for seed in range(5):
        matrix = badly_scaled(definite(20, seed), 4, seed)
        scaled = exact.transformed(matrix, exact.jacobi(matrix))
        assert float(exact.spectral_radius(scaled)) <= 20


def test_t20_never_diverges_holds_for_rates_below_two_over_root_n():
    """At rate one even equilibration diverges on a definite matrix of nearly ones, N = 9: 3 > 2."""
    matrix = torch.ones(9, 9, dtype=DOUBLE) + 0.01 * torch.eye(9, dtype=DOUBLE)
    d, start = exact.equilibration(matrix), torch.ones(9, dtype=DOUBLE)
    assert _path(matrix, d, start, rate=1.0)[-1] > 1e3
    assert _path(matrix, d, start, rate=0.9 * 2 / 3)[-1] < 0.1


@pytest.mark.parametrize("make", [definite, indefinite])
@pytest.mark.parametrize("seed", range(4))
def test_t20_below_that_rate_no_positive_direction_diverges(make, seed):
    """In the eigenbasis of D_E^-1 H each direction is multiplied by 1 - rate mu, mu <= sqrt(N)."""
    matrix = make(16, seed)
    values = torch.linalg.eigvals(exact.left_scaled(matrix, exact.equilibration(matrix))).real
    factors = (1 - 0.99 * 2 / math.sqrt(16) * values).abs()
    assert bool((factors[values > 0] < 1).all())
    assert bool((factors[values < 0] > 1).all())  # and every negative one is escaped


def test_t20_the_radius_counts_negative_and_complex_eigenvalues():
    quarter_turn = torch.tensor([[0.0, -3.0], [3.0, 0.0]], dtype=DOUBLE)
    assert float(exact.spectral_radius(quarter_turn)) == pytest.approx(3.0)
    below = torch.diag(torch.tensor([-5.0, 2.0], dtype=DOUBLE))
    assert float(exact.spectral_radius(below)) == pytest.approx(5.0)
