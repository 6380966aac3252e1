"""Section 2, preconditioning: rows T1 to T4 of the claims."""

import math

import pytest
import torch

from equilibrate import exact
from tests.exact.matrices import (
    DOUBLE,
    EPS,
    MATRICES,
    definite,
    indefinite,
    normal,
    with_spectrum,
)


def _preconditioners(matrix):
    """Diagonal and full ones."""
    return [exact.equilibration(matrix), definite(len(matrix), 7)]


def _root(preconditioner):
    if preconditioner.ndim == 1:
        return preconditioner.sqrt().diag()
    return torch.linalg.inv(exact.inverse_root(preconditioner))


@pytest.mark.parametrize("kind", [0, 1], ids=["diagonal", "full"])
def test_t01_a_step_on_the_transformed_function_is_a_preconditioned_step(matrix, kind):
    """Equations 1 to 4, step by step, on f = t^T H t / 2 + sum t^4 / 4 (not just a quadratic)."""
    preconditioner = _preconditioners(matrix)[kind]
    root = _root(preconditioner)
    inverse_root = torch.linalg.inv(root)

    def f(t):
        return t @ matrix @ t / 2 + (t**4).sum() / 4

    def f_hat(t_hat):
        return f(inverse_root @ t_hat)

    size = len(matrix)
    # Small enough a step that neither path runs away; the identity holds for any.
    theta, rate = 0.1 * normal(size, seed=3), 0.01
    theta_hat = root @ theta
    for _ in range(5):
        gradient = torch.func.grad(f)(theta)
        gradient_hat = torch.func.grad(f_hat)(theta_hat)
        torch.testing.assert_close(gradient_hat, inverse_root.T @ gradient, rtol=1e-8, atol=1e-10)
        step = gradient / preconditioner if kind == 0 else torch.linalg.solve(
            preconditioner, gradient)  # fmt: skip
        theta = theta - rate * step
        theta_hat = theta_hat - rate * gradient_hat
        # Rounding is magnified by the conditioning of the root, at most 1e4 in the cases.
        torch.testing.assert_close(inverse_root @ theta_hat, theta, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", [0, 1], ids=["diagonal", "full"])
def test_t01_the_transformed_hessian_is_the_hessian_of_the_transformed_function(matrix, kind):
    preconditioner = _preconditioners(matrix)[kind]
    inverse_root = torch.linalg.inv(_root(preconditioner))
    hessian = torch.func.hessian(lambda t: (inverse_root @ t) @ matrix @ (inverse_root @ t) / 2)
    found = hessian(torch.zeros(len(matrix), dtype=DOUBLE))
    scale = float(found.abs().max())
    torch.testing.assert_close(
        exact.transformed(matrix, preconditioner), found, rtol=1e-8, atol=1e-10 * scale
    )


def test_t02_the_condition_number_is_the_ratio_of_extreme_singular_values(matrix):
    """Also of |eigenvalues|, for every symmetric matrix; definite or not makes no difference."""
    values = torch.linalg.eigvalsh(matrix).abs()
    found = exact.condition_number(matrix)
    assert math.isfinite(found)
    # The smallest eigenvalue is known to N eps of the largest, so kappa to a relative N eps kappa.
    tolerance = 10 * len(matrix) * EPS * float(found)
    assert float(found) == pytest.approx(float(values.max() / values.min()), rel=tolerance)
    flipped = exact.condition_number(exact.absolute(matrix))
    assert float(flipped) == pytest.approx(float(found), rel=tolerance)


@pytest.mark.parametrize("values", [[4.0, 2.0, 1.0], [4.0, -2.0, 1.0], [-4.0, -2.0, -1.0]])
def test_t02_signs_do_not_matter(values):
    found = exact.condition_number(with_spectrum(torch.tensor(values, dtype=DOUBLE), 5))
    assert float(found) == pytest.approx(4.0, rel=1e-12)


SADDLE = torch.tensor([[5.0, 1.0], [1.0, -0.5]], dtype=DOUBLE)  # curvatures 5.2 and -0.7


@pytest.mark.parametrize("start", [(1.0, 0.1), (-0.3, 0.7), (0.2, -2.0)])
def test_t03_newton_moves_to_the_saddle_and_the_absolute_step_away(start):
    theta = torch.tensor(start, dtype=DOUBLE)
    gradient = SADDLE @ theta
    newton = theta + exact.newton_step(SADDLE, gradient)
    assert float(newton.norm()) < 1e-12  # the whole way, in one step
    free = theta + exact.saddle_free_step(SADDLE, gradient)
    downhill = torch.linalg.eigh(SADDLE)[1][:, 0]
    assert abs(float(free @ downhill)) == pytest.approx(2 * abs(float(theta @ downhill)))
    assert float(free @ SADDLE @ free) < 0 < float(gradient @ gradient)
    assert float(free @ SADDLE @ free) < float(theta @ SADDLE @ theta)


def test_t03_newton_goes_uphill_where_curvature_is_negative():
    theta = torch.tensor([0.0, 1.0], dtype=DOUBLE)
    gradient = SADDLE @ theta
    eigenvalue, direction = (x[..., 0] for x in torch.linalg.eigh(SADDLE))
    assert eigenvalue < 0
    step = exact.newton_step(SADDLE, gradient)
    assert float((step @ direction) * (gradient @ direction)) > 0
    free = exact.saddle_free_step(SADDLE, gradient)
    assert float(free @ gradient) < 0


def test_t04_the_absolute_matrix_conditions_perfectly(matrix):
    """Up to scale, in both forms; |H|^-1 H = sum of signs."""
    kappa = float(exact.condition_number(matrix))
    for factor in (1.0, 7.0):
        full = factor * exact.absolute(matrix)
        # |H| is known to eps ||H||, and dividing by its smallest direction magnifies that by kappa.
        tolerance = 100 * len(matrix) * EPS * kappa
        symmetric = exact.condition_number(exact.transformed(matrix, full))
        assert float(symmetric) == pytest.approx(1.0, abs=tolerance)
        one_sided = exact.condition_number(torch.linalg.solve(full, matrix))
        assert float(one_sided) == pytest.approx(1.0, abs=tolerance)


@pytest.mark.parametrize("t", [-2.0, -0.3, 0.0, 0.5, 1.0, 3.0])
def test_t04_proposition_1_is_false_for_indefinite_matrices_in_the_symmetric_form(t):
    """diag(1, -1) has a whole family of perfect s.p.d. preconditioners: the boosts."""
    matrix = torch.diag(torch.tensor([1.0, -1.0], dtype=DOUBLE))
    entries = [[math.cosh(t), math.sinh(t)], [math.sinh(t), math.cosh(t)]]
    inverse = torch.tensor(entries, dtype=DOUBLE)
    preconditioner = torch.linalg.inv(inverse)
    preconditioner = (preconditioner + preconditioner.T) / 2
    assert bool((torch.linalg.eigvalsh(preconditioner) > 0).all())
    kappa = exact.condition_number(exact.transformed(matrix, preconditioner))
    # t = 3: D has condition number exp(6) = 403, far from what rounding could blur at 1e-9.
    assert float(kappa) == pytest.approx(1.0, abs=1e-9)
    # In the one-sided form only t = 0, the absolute matrix, is perfect.
    one_sided = exact.condition_number(inverse @ matrix)
    assert float(one_sided) == pytest.approx(math.exp(2 * abs(t)), rel=1e-9)


def _others(matrix, count=20):
    """S.p.d. matrices |H|^1/2 P |H|^1/2 with P s.p.d. and not a multiple of one."""
    root = torch.linalg.inv(exact.inverse_root(exact.absolute(matrix)))
    return [root @ definite(len(matrix), 50 + i) @ root for i in range(count)]


WELL = [c for c in MATRICES if "scaled" not in c.name and "singular" not in c.name]


@pytest.mark.parametrize("case", WELL, ids=lambda c: c.name)
def test_t04_one_sided_only_the_absolute_matrix_is_perfect(case):
    """kappa(D^-1 H) = 1 means D^-1 H = c Q, Q orthogonal; then D^2 = H^2 / c^2, so D = |H| / c."""
    for other in _others(case.matrix):
        assert float(exact.condition_number(torch.linalg.solve(other, case.matrix))) > 1 + 1e-6


@pytest.mark.parametrize("case", [c for c in WELL if c.definite], ids=lambda c: c.name)
def test_t04_for_definite_matrices_the_symmetric_form_is_unique_too(case):
    for other in _others(case.matrix):
        kappa = exact.condition_number(exact.transformed(case.matrix, (other + other.T) / 2))
        assert float(kappa) > 1 + 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_t04_among_commuting_preconditioners_the_symmetric_form_is_unique(seed):
    """D = sum_j m_j q_j q_j^T turns the eigenvalues into lambda_j / m_j: kappa is their ratio."""
    matrix = indefinite(6, seed)
    values, vectors = torch.linalg.eigh(matrix)
    sizes = normal(6, seed=seed).abs() + 0.1
    found = exact.condition_number(exact.transformed(matrix, (vectors * sizes) @ vectors.T))
    ratio = (values / sizes).abs()
    assert float(found) == pytest.approx(float(ratio.max() / ratio.min()), rel=1e-9)
    assert float(found) > 1
