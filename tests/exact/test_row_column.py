"""Row-and-column equilibration, exact and from products alone."""

import math

import pytest
import torch

from equilibrate import exact, hessian
from equilibrate.curvature import DISTRIBUTIONS, LossHessian
from tests.cases import NETWORK
from tests.exact.matrices import DOUBLE, badly_scaled, definite, indefinite, scales


def test_rows_and_columns_have_unit_norm(matrix):
    d = exact.row_column(matrix, tolerance=1e-10)
    scaled = exact.transformed(matrix, d)
    assert bool((d > 0).all())
    for dim in (0, 1):
        assert float((scaled.norm(dim=dim) - 1).abs().max()) <= 1.01e-10


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("size", [1, 2, 20, 300])
@pytest.mark.parametrize("decades", [0, 8])
def test_by_default_it_stops_where_the_dtype_does(dtype, size, decades):
    """Within 1e-8, or 8 eps where those are more; as many again for the check's own roundings."""
    batch = torch.stack([badly_scaled(definite(size, seed), decades, seed) for seed in range(2)])
    batch = batch.to(dtype)
    norms = exact.equilibration(exact.transformed(batch, exact.row_column(batch)))
    eps = torch.finfo(dtype).eps
    assert float((norms - 1).abs().max()) <= max(1e-8, 8 * eps) + 8 * eps


@pytest.mark.parametrize("tolerance", [-1.0, 0.0, math.nan, 1e-7])
def test_a_tolerance_out_of_reach_is_refused_before_a_thousand_rounds(tolerance):
    with pytest.raises(ValueError, match=r"float32 cannot .* widen it .*\.double\(\)"):
        exact.row_column(torch.tensor([[2.0]]), tolerance=tolerance)


@pytest.mark.parametrize("decades", [0, 3, 8])
def test_a_diagonal_change_of_units_changes_nothing(decades):
    """D(S H S) = S^2 D(H), so the scaled matrix is the same: what Jacobi has, and D_E has not."""
    matrix, s = indefinite(20, 0), scales(20, decades, 1)
    plain, moved = exact.row_column(matrix), exact.row_column(s[:, None] * matrix * s)
    torch.testing.assert_close(moved, s.square() * plain, rtol=1e-6, atol=0.0)


def test_a_batch_is_each_of_its_matrices():
    batch = torch.stack([indefinite(6, seed) for seed in range(6)]).view(2, 3, 6, 6)
    found = exact.row_column(batch, tolerance=1e-12)
    for i in range(2):
        for j in range(3):
            alone = exact.row_column(batch[i, j], tolerance=1e-12)
            torch.testing.assert_close(found[i, j], alone, rtol=1e-10, atol=0.0)


def test_a_matrix_without_such_a_scaling_is_reported():
    """The corner one lies on no permutation without zeros: its row norm tends to one for ever."""
    matrix = torch.tensor([[1.0, 1.0], [1.0, 0.0]], dtype=DOUBLE)
    with pytest.raises(RuntimeError, match=r"still .* from one after 50 iterations"):
        exact.row_column(matrix, iterations=50)


def test_a_row_of_zeros_is_reported():
    with pytest.raises(ValueError, match="row of zeros"):
        exact.row_column(torch.diag(torch.tensor([1.0, 0.0])))
    with pytest.raises(ValueError, match="row of zeros"):
        exact.row_column_stochastic(lambda v: [0 * v[0]], [torch.ones(3)])


def test_too_few_probes_are_reported():
    with pytest.raises(ValueError, match="at least 192"):
        exact.row_column_stochastic(lambda v: v, [torch.ones(3)], probes=100)


def test_a_product_that_is_not_finite_is_reported():
    with pytest.raises(ValueError, match="NaN"):
        exact.row_column_stochastic(lambda v: [v[0] * math.nan], [torch.ones(3)])


CASES = {
    "indefinite": lambda seed: indefinite(30, seed),
    "definite": lambda seed: definite(30, seed),
    "four decades": lambda seed: badly_scaled(indefinite(30, seed), 4, seed),
    "twelve decades": lambda seed: badly_scaled(indefinite(30, seed), 12, seed),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("probes", [400, 1600])
def test_products_alone_reach_unit_row_norms_within_one_over_root_k(name, probes):
    """The stated tolerance: the root mean square of (row norm - 1) is about 0.94/sqrt(k).

    Six seeds of 30 rows, half of whose deviations count as independent: the measured root mean
    square has a relative error near 1/sqrt(2 * 90) = 7%; definite matrices have a stronger B, which
    adds up to a quarter. The largest of 180 deviations stays under 4.5 standard ones.
    """
    off = []
    for seed in range(6):
        matrix = CASES[name](seed)
        found = exact.row_column_stochastic(
            lambda v, m=matrix: [m @ v[0]], [matrix[0]], probes=probes, seed=seed
        )
        off.append(exact.equilibration(exact.transformed(matrix, found.value[0])) - 1)
    deviations = torch.cat(off) * math.sqrt(probes)
    assert 0.6 < float(deviations.square().mean().sqrt()) < 1.35
    assert float(deviations.abs().max()) < 4.5


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_the_standard_error_is_honest(distribution):
    """z = (estimate - exact) / error has a mean square near one, over 8 seeds of 30 entries."""
    matrix = badly_scaled(indefinite(30, 1), 4, 1)
    truth = exact.row_column(matrix)
    z = []
    for seed in range(8):
        found = exact.row_column_stochastic(
            lambda v: [matrix @ v[0]],
            [matrix[0]],
            probes=800,
            distribution=distribution,
            seed=seed,
        )
        assert found.probes == 800
        z.append((found.value[0] - truth) / found.standard_error[0])
    assert 0.75 < float(torch.stack(z).square().mean().sqrt()) < 1.3


def test_it_works_on_the_live_loss_of_a_network():
    """83 parameters in four tensors, 2,000 products, against the dense Hessian's answer."""
    parameters, loss = NETWORK.parameters_and_loss()
    matrix = hessian(loss(), parameters)
    matrix = (matrix + matrix.T) / 2
    found = exact.row_column_stochastic(LossHessian(loss(), parameters), parameters, probes=2000)
    assert [v.shape for v in found.value] == [p.shape for p in parameters]
    flat = torch.cat([v.reshape(-1) for v in found.value])
    norms = exact.equilibration(exact.transformed(matrix, flat))
    # Twice the tolerance of random matrices: B of a network has strong eigenvalues of its own.
    assert float((norms - 1).square().mean().sqrt()) < 2 / math.sqrt(2000)
