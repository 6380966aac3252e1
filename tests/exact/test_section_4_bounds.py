"""Section 4, Guggenheimer's bound: rows T11 to T15 of the claims."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from equilibrate import exact
from tests.exact.matrices import (
    DOUBLE,
    badly_scaled,
    definite,
    indefinite,
    orthogonal,
    scales,
    with_spectrum,
)

SLACK = 1e-9  # rounding in sums of N logarithms


def _bound_after(matrix, diagonal):
    return float(exact.log_guggenheimer_bound(exact.transformed(matrix, diagonal)))


def test_t11_the_bound_holds(matrix):
    kappa = float(exact.condition_number(matrix))
    assert math.log(kappa) < float(exact.log_guggenheimer_bound(matrix))
    torch.testing.assert_close(
        exact.guggenheimer_bound(matrix), exact.log_guggenheimer_bound(matrix).exp()
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0.01, 100.0), min_size=1, max_size=12),
    st.integers(0, 2**31),
)
def test_t11_the_bound_holds_for_any_spectrum(sizes, seed):
    signs = torch.sign(torch.rand(len(sizes), generator=torch.Generator().manual_seed(seed)) - 0.5)
    matrix = with_spectrum(torch.tensor(sizes, dtype=DOUBLE) * signs, seed)
    kappa = math.log(float(exact.condition_number(matrix)))
    # Strict in exact arithmetic: at N = 2 the gap closes as kappa grows, so allow for rounding.
    assert kappa < float(exact.log_guggenheimer_bound(matrix)) + SLACK


def test_t11_logarithms_reach_a_thousand_parameters():
    matrix = indefinite(1000, 0)
    found = exact.log_guggenheimer_bound(matrix)
    assert math.isfinite(found)
    assert not math.isfinite(torch.linalg.det(matrix))  # the plain formula is of no use here
    assert math.log(exact.condition_number(matrix)) < float(found)


SINGULAR = {
    "zeros": torch.zeros(2, 2),
    "ones": torch.ones(2, 2),
    "thirds": torch.tensor([[1.0, 3.0], [3.0, 9.0]]),
    "a row of zeros": torch.diag(torch.tensor([1e-30, 0.0])),
}


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("name", SINGULAR)
def test_t11_the_bound_of_a_singular_matrix_is_inf_never_nan(name, dtype):
    singular = SINGULAR[name].to(dtype)
    batch = torch.stack([singular, torch.eye(2, dtype=dtype)])
    found = exact.log_guggenheimer_bound(batch)
    assert float(found[0]) == math.inf
    assert float(found[1]) == pytest.approx(math.log(2))


def test_t12_row_equilibration_improves_the_bound_by_the_quotient(matrix):
    """(||H||_F / sqrt N)^N / det D_E; the paper's product with det D_E is something else."""
    d = exact.equilibration(matrix)
    gain = exact.log_guggenheimer_bound(matrix) - exact.log_guggenheimer_bound(
        exact.left_scaled(matrix, d)
    )
    factor = exact.log_equilibration_improvement(matrix)
    # Determinants are known to a relative N eps kappa <= 1e-4 in the cases.
    assert float(factor) == pytest.approx(float(gain), abs=1e-4)
    assert float(factor) >= 0
    torch.testing.assert_close(exact.equilibration_improvement(matrix), factor.exp())
    as_printed = float(factor + 2 * d.log().sum())
    assert as_printed != pytest.approx(float(gain), abs=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_t12_rows_of_one_norm_leave_nothing_to_improve(size, dtype):
    """The means are equal, so the gain is zero: exactly where the norms are, else to rounding."""
    assert float(exact.log_equilibration_improvement(0.1 * torch.eye(size, dtype=dtype))) == 0
    turned = 0.1 * orthogonal(size, 0).to(dtype)
    found = float(exact.log_equilibration_improvement(turned))
    # N logarithms, each of a norm known to N eps at worst.
    assert 0 <= found <= size**2 * torch.finfo(dtype).eps


def test_t12_the_printed_factor_can_be_below_one():
    """Scaling H by c changes no condition number; the printed factor scales by c^2N."""
    matrix = 0.01 * indefinite(5, 0)
    factor = float(exact.equilibration_improvement(matrix))
    assert factor >= 1
    printed = factor * float(exact.equilibration(matrix).prod()) ** 2
    assert printed < 1e-10


def test_t12_the_symmetric_form_gains_at_least_as_much(matrix):
    d = exact.equilibration(matrix)
    gain = float(exact.log_guggenheimer_bound(matrix)) - _bound_after(matrix, d)
    assert gain >= float(exact.log_equilibration_improvement(matrix)) - 1e-4
    assert float(exact.transformed(matrix, d).norm()) <= math.sqrt(len(d)) * (1 + 1e-12)


@pytest.mark.parametrize("size", [2, 5, 20, 100])
def test_t13_the_bound_is_tight_when_all_but_the_smallest_singular_value_are_equal(size):
    """Then bound / kappa = 2 ((N - 1 + e^2) / N)^(N/2): 1 at N = 2, up to 2 / sqrt(e) = 1.213."""
    values = torch.ones(size, dtype=DOUBLE)
    values[0] = 1e-4
    values[1::2] *= -1
    tight = with_spectrum(values, 3)
    ratio = exact.log_guggenheimer_bound(tight).exp() / exact.condition_number(tight)
    assert float(ratio) == pytest.approx(2 * ((size - 1) / size) ** (size / 2), rel=1e-5)
    assert 1 - 1e-6 < float(ratio) < 1.2131
    if size > 2:
        spread = with_spectrum(torch.logspace(-4, 0, size, dtype=DOUBLE), 3)
        loose = exact.log_guggenheimer_bound(spread) - exact.condition_number(spread).log()
        assert float(loose) > size / 2  # grows with N, where the tight one stays put


@pytest.mark.parametrize("size", [2, 5, 20])
@pytest.mark.parametrize("seed", range(3))
def test_t14_the_bound_falls_more_the_more_row_norms_vary(size, seed):
    """Rows of an orthogonal matrix times 10^(t u): the gain grows with every t."""
    u, rows = scales(size, 1.0, seed).log10(), orthogonal(size, seed)
    gains = [
        float(exact.log_equilibration_improvement(10 ** (t * u)[:, None] * rows))
        for t in (0.0, 0.5, 1.0, 2.0, 4.0)
    ]
    assert gains[0] == pytest.approx(0.0, abs=1e-9)
    assert all(b > a for a, b in itertools.pairwise(gains))


def test_t14_extends_to_columns_and_to_rows_and_columns(matrix):
    """Columns: transpose. Row-column: it has the least bound of ALL symmetric diagonal scalings.

    With B = D^-1/2 H D^-1/2 of unit rows, ||H||_F^2 / N = sum_ij (B_ij^2 / N) d_i d_j is a weighted
    mean, at least the geometric one, which is det(D)^(2/N).
    """
    d = exact.equilibration(matrix)
    before = float(exact.log_guggenheimer_bound(matrix))
    columns = float(exact.log_guggenheimer_bound(matrix / d))
    assert columns <= before + SLACK
    least = _bound_after(matrix, exact.row_column(matrix))
    rivals = [d, exact.jacobi(matrix), *(scales(len(matrix), 2, seed) for seed in range(5))]
    for rival in [torch.ones_like(d), *rivals]:
        assert least <= _bound_after(matrix, rival) + 1e-6


@pytest.mark.parametrize("form", [exact.transformed, exact.left_scaled])
def test_t15_jacobi_worsens_the_bound_on_random_indefinite_matrices(form):
    worse = 0
    for seed in range(50):
        matrix = indefinite(20, seed)
        after = exact.log_guggenheimer_bound(form(matrix, exact.jacobi(matrix)))
        worse += int(after > exact.log_guggenheimer_bound(matrix))
    assert worse >= 45  # measured: 200 of 200


def test_t15_jacobi_can_improve_it_more_than_equilibration():
    """In the symmetric form, on badly scaled matrices: Jacobi repairs the scaling, D_E half."""
    better = 0
    for seed in range(50):
        matrix = badly_scaled(indefinite(20, seed), 4, seed)
        jacobi = _bound_after(matrix, exact.jacobi(matrix))
        better += int(jacobi < _bound_after(matrix, exact.equilibration(matrix)))
    assert better >= 40  # measured: 192 of 200


@pytest.mark.parametrize("make", [definite, indefinite])
@pytest.mark.parametrize("seed", range(10))
def test_t15_one_sided_no_diagonal_improves_it_more_than_equilibration(make, seed):
    """By the means again: given det(D), ||D^-1 H||_F is least where all its rows are equal."""
    matrix = badly_scaled(make(10, seed), 4, seed)
    best = exact.log_guggenheimer_bound(exact.left_scaled(matrix, exact.equilibration(matrix)))
    for d in (exact.jacobi(matrix), scales(10, 3, seed), exact.row_column(matrix)):
        assert float(best) <= float(exact.log_guggenheimer_bound(exact.left_scaled(matrix, d)))
