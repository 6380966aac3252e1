"""A change of units, c H for H, changes a result by a power of c and by no digit of it.

c goes to where the squares of the entries leave the range of the dtype: from there on a plain sum
of squares is zero or inf, though the result itself is an ordinary number.
"""

import pytest
import torch

from equilibrate import exact
from tests.exact.matrices import DOUBLE

MATRIX = torch.tensor([[2.0, 1.0, 0.5], [1.0, -3.0, 0.25], [0.5, 0.25, 1.0]])
VECTOR = torch.tensor([1.0, -2.0, 0.5])


def _stochastic(matrix):
    """Signs as probes: the norm of a row with one entry is exact."""
    found = exact.row_column_stochastic(
        lambda v: [matrix @ v[0]], [matrix[0]], probes=192, distribution="rademacher"
    )
    return found.value[0]


# Each function and the power of c in f(c H) = c^power f(H).
POWERS = {
    "absolute": (exact.absolute, 1),
    "newton_step": (lambda m: exact.newton_step(m, VECTOR.to(m)), -1),
    "saddle_free_step": (lambda m: exact.saddle_free_step(m, VECTOR.to(m)), -1),
    "transformed": (lambda m: exact.transformed(m, VECTOR.abs().to(m)), 1),
    "left_scaled": (lambda m: exact.left_scaled(m, VECTOR.abs().to(m)), 1),
    "inverse_root": (lambda m: exact.inverse_root(exact.absolute(m)), -0.5),
    "condition_number": (exact.condition_number, 0),
    "spectral_radius": (exact.spectral_radius, 1),
    "rayleigh_quotient": (lambda m: exact.rayleigh_quotient(m, VECTOR.to(m)), 1),
    "equilibration": (exact.equilibration, 1),
    "jacobi": (exact.jacobi, 1),
    "row_column": (exact.row_column, 1),
    "row_column_stochastic": (_stochastic, 1),
    "log_guggenheimer_bound": (exact.log_guggenheimer_bound, 0),
    "guggenheimer_bound": (exact.guggenheimer_bound, 0),
    "log_equilibration_improvement": (exact.log_equilibration_improvement, 0),
    "equilibration_improvement": (exact.equilibration_improvement, 0),
}
# Even powers of two, whose root is one as well: multiplying by them rounds nothing.
UNITS = [
    (dtype, 2.0**power)
    for dtype, powers in {torch.float32: (-120, -80, 80, 120), DOUBLE: (-1000, 1000)}.items()
    for power in powers
]


@pytest.mark.parametrize(("dtype", "unit"), UNITS)
@pytest.mark.parametrize("name", POWERS)
def test_a_change_of_units_changes_no_digit(name, dtype, unit):
    function, power = POWERS[name]
    matrix = MATRIX.to(dtype)
    # Decompositions may scale by another number inside: N eps for each of their N sweeps or so,
    # times the condition number, 4.
    expected = function(matrix) * unit**power
    atol = 36 * torch.finfo(dtype).eps * float(expected.abs().max())
    torch.testing.assert_close(function(unit * matrix), expected, rtol=0.0, atol=atol)


# Rows that are as far apart as a float32 allows; their condition number is 1e60.
WIDE = torch.tensor([1e30, -1e-30])


def test_rows_of_very_different_size_keep_each_its_own():
    matrix = WIDE.diag()
    eps = torch.finfo(WIDE.dtype).eps
    for found in (exact.equilibration(matrix), exact.row_column(matrix), _stochastic(matrix),
                  exact.rayleigh_quotient(matrix, torch.eye(2)).abs()):  # fmt: skip
        torch.testing.assert_close(found, WIDE.abs(), rtol=8 * eps, atol=0.0)
    # 2 / |det| (||H||^2 / 2), the second row adding nothing to the norm.
    true = WIDE.double().abs().log()
    assert float(exact.log_guggenheimer_bound(matrix)) == pytest.approx(float(true[0] - true[1]))


SIZES = [(torch.float32, 1e-25), (torch.float32, 1e-45), (torch.float32, 3e37), (DOUBLE, 1e-300)]


@pytest.mark.parametrize(("dtype", "size"), SIZES)
def test_a_direction_has_no_size(dtype, size):
    matrix, vector = MATRIX.to(dtype), torch.full((3,), size, dtype=dtype)
    found = exact.rayleigh_quotient(matrix, vector)
    assert float(found) == pytest.approx(float(matrix.sum()) / 3, rel=1e-6)
    # Two entries that are each known to two roundings, eps/2, differ by 2 eps of their size.
    distance = float(exact.cosine_distance(vector, torch.ones_like(vector)))
    assert 0 <= distance <= 2 * torch.finfo(dtype).eps ** 2
