"""Bad input gets a clear error that names the fix, from every function that takes a matrix."""

import inspect
import math

import pytest
import torch

from equilibrate import exact
from tests.exact.matrices import DOUBLE, definite, indefinite

VECTOR = torch.ones(3, dtype=DOUBLE)
SYMMETRIC = {
    "absolute": exact.absolute,
    "newton_step": lambda m: exact.newton_step(m, VECTOR),
    "saddle_free_step": lambda m: exact.saddle_free_step(m, VECTOR),
    "transformed": lambda m: exact.transformed(m, VECTOR),
    "transformed by": lambda m: exact.transformed(definite(3, 0), m),
    "inverse_root": exact.inverse_root,
    "row_column": exact.row_column,
}
SQUARE = {
    **SYMMETRIC,
    "left_scaled": lambda m: exact.left_scaled(m, VECTOR),
    "condition_number": exact.condition_number,
    "rayleigh_quotient": lambda m: exact.rayleigh_quotient(m, VECTOR),
    "spectral_radius": exact.spectral_radius,
    "equilibration": exact.equilibration,
    "jacobi": exact.jacobi,
    "log_guggenheimer_bound": exact.log_guggenheimer_bound,
    "guggenheimer_bound": exact.guggenheimer_bound,
    "log_equilibration_improvement": exact.log_equilibration_improvement,
    "equilibration_improvement": exact.equilibration_improvement,
}
# They take a network, a size or two vectors; or hold results.
OTHER = {"cosine_distance", "curvature_propagation", "gauss_newton",
         "gauss_newton_diagonal", "gauss_newton_product", "row_column_stochastic",
         "van_der_sluis_factor"}  # fmt: skip


def test_every_public_function_is_listed_here():
    assert set(SQUARE) - {"transformed by"} | OTHER == set(exact.__all__)


@pytest.mark.parametrize("name", sorted(exact.__all__))
def test_every_public_name_has_a_docstring_with_an_example(name):
    thing = getattr(exact, name)
    assert ">>>" in inspect.getdoc(thing), name


NOT_SQUARE = [(3, 4), (3,), (2, 4, 3), (0, 3)]
PAIRS = [(n, s) for n in SQUARE for s in NOT_SQUARE if (n, s) != ("transformed by", (3,))]


@pytest.mark.parametrize(("name", "shape"), PAIRS)
def test_not_square(name, shape):
    matrix = torch.ones(shape, dtype=DOUBLE)
    with pytest.raises(ValueError, match=r"must be square|as many dimensions"):
        SQUARE[name](matrix)


@pytest.mark.parametrize("name", SQUARE)
def test_no_entries(name):
    with pytest.raises(ValueError, match=r"has no entries, got shape \(0, 0\)"):
        SQUARE[name](torch.ones(0, 0, dtype=DOUBLE))


@pytest.mark.parametrize("name", SQUARE)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite(name, bad):
    matrix = definite(3, 0)
    matrix[1, 1] = bad
    with pytest.raises(ValueError, match="1 NaN or infinite"):
        SQUARE[name](matrix)
    with pytest.raises(ValueError, match="NaN or infinite"):
        SQUARE[name](torch.stack([definite(3, 1), matrix])[1])


@pytest.mark.parametrize("name", SQUARE)
def test_whole_or_complex_numbers(name):
    # .double() of a complex number would drop its imaginary part without a word.
    for dtype, advice in ((torch.int64, r"\.double\(\)"), (torch.complex128, r"\.real")):
        with pytest.raises(ValueError, match=f"real floating.*{advice}"):
            SQUARE[name](torch.eye(3, dtype=dtype))


@pytest.mark.parametrize("name", SQUARE)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(name, dtype):
    with pytest.raises(ValueError, match=rf"{dtype}.*\.float\(\) it"):
        SQUARE[name](torch.eye(3, dtype=dtype))


@pytest.mark.parametrize("name", SYMMETRIC)
def test_not_symmetric(name):
    matrix = definite(3, 0)
    matrix[0, 1] += 0.01
    with pytest.raises(ValueError, match=r"must be symmetric.*symmetrise it"):
        SYMMETRIC[name](matrix)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_rounding_is_no_asymmetry(name):
    matrix = definite(3, 0)
    matrix[0, 1] += 1e-13
    SYMMETRIC[name](matrix)


SINGULAR = torch.ones(3, 3, dtype=DOUBLE)


@pytest.mark.parametrize("name", ["newton_step", "saddle_free_step"])
def test_an_inverse_of_a_singular_matrix(name):
    with pytest.raises(ValueError, match=r"singular.*damp it"):
        SYMMETRIC[name](SINGULAR)
    SYMMETRIC[name](SINGULAR + 1e-3 * torch.eye(3, dtype=DOUBLE))


def test_a_preconditioner_that_is_not_positive():
    matrix = definite(3, 0)
    for bad in (torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0, -2.0, 1.0])):
        with pytest.raises(ValueError, match="preconditioner must be positive, but 1"):
            exact.transformed(matrix, bad.to(DOUBLE))
        with pytest.raises(ValueError, match="diagonal must be positive, but 1"):
            exact.left_scaled(matrix, bad.to(DOUBLE))
        with pytest.raises(ValueError, match="spectrum of the preconditioner must be positive"):
            exact.transformed(matrix, bad.to(DOUBLE).diag())


def test_vectors_of_another_length():
    for call in (exact.newton_step, exact.rayleigh_quotient, exact.left_scaled, exact.transformed):
        with pytest.raises(ValueError, match=r"must have shape \(\.\.\., 3\).*got \(4,\)"):
            call(definite(3, 0), torch.ones(4, dtype=DOUBLE))


def test_a_vector_without_direction_and_a_size_of_nothing():
    with pytest.raises(ValueError, match="must not be zero"):
        exact.rayleigh_quotient(definite(3, 0), torch.zeros(3, dtype=DOUBLE))
    with pytest.raises(ValueError, match="at least 1"):
        exact.van_der_sluis_factor(0)


ONES = torch.ones(3)
NO_DIRECTION = {
    "zero": (0 * ONES, "must have an entry that is not zero"),
    "whole numbers": (ONES.long(), r"must hold real floating.*\.double\(\)"),
    "complex": (ONES + 0j, r"must hold real floating.*\.real"),
    "not finite": (ONES * math.nan, "holds 3 NaN or infinite"),
    "shorter": (ONES[:1], "must have one shape.* reshape one"),
    "turned": (ONES.view(3, 1), "must have one shape.* reshape one"),
}


@pytest.mark.parametrize("name", NO_DIRECTION)
def test_vectors_without_an_angle(name):
    vector, message = NO_DIRECTION[name]
    with pytest.raises(ValueError, match=f"first.* {message}"):
        exact.cosine_distance(vector, ONES)
    with pytest.raises(ValueError, match=f"second.* {message}"):
        exact.cosine_distance(ONES, vector)


def test_no_entries_have_no_angle():
    with pytest.raises(ValueError, match="must have an entry"):
        exact.cosine_distance(ONES[:0], ONES[:0])


def test_row_norms_of_zero_have_no_improvement():
    matrix = torch.diag(torch.tensor([1.0, 0.0]))
    with pytest.raises(ValueError, match="row norms must be positive"):
        exact.equilibration_improvement(matrix)


@pytest.mark.parametrize("floor", [-0.1, 1.0, 2.0, math.nan])
def test_a_floor_outside_its_range(floor):
    with pytest.raises(ValueError, match="relative_floor"):
        exact.condition_number(SINGULAR, relative_floor=floor)


@pytest.mark.parametrize("size", [1, 2, 3, 20])
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_a_singular_matrix_has_condition_number_inf_never_nan(size, dtype):
    zeros, eye = torch.zeros(size, size, dtype=dtype), torch.eye(size, dtype=dtype)
    assert float(exact.condition_number(zeros)) == math.inf
    assert float(exact.condition_number(zeros, relative_floor=0.5)) == math.inf
    if size > 1:
        ones = torch.ones_like(zeros)
        assert float(exact.condition_number(ones)) == math.inf
        # What is left of rank one is perfectly conditioned.
        assert float(exact.condition_number(ones, relative_floor=1e-3)) == pytest.approx(1.0)
    found = exact.condition_number(torch.stack([zeros, eye]))
    assert found.tolist() == [math.inf, 1.0]


def test_a_softmax_layer_is_singular_by_construction_and_a_floor_leaves_that_out():
    """Shifting all output weights alike changes nothing: five null directions for five inputs."""
    x = torch.cat([indefinite(4, 0), torch.ones(4, 1, dtype=DOUBLE)], 1)

    def loss(w):
        return torch.nn.functional.cross_entropy(x @ w.view(5, 3), torch.tensor([0, 1, 2, 0]))

    matrix = torch.func.hessian(loss)(torch.zeros(15, dtype=DOUBLE))
    values = torch.linalg.eigvalsh(matrix)
    kept = values[values > 1e-10 * values[-1]]
    assert float(exact.condition_number(matrix)) > 1e14
    found = exact.condition_number(matrix, relative_floor=1e-10)
    assert float(found) == pytest.approx(float(kept[-1] / kept[0]), rel=1e-6)


BATCHED = {n: f for n, f in SQUARE.items() if n not in ("transformed by", "transformed")}


@pytest.mark.parametrize("name", BATCHED)
def test_leading_dimensions_are_a_batch(name):
    """A batch of 2 x 2 matrices gives what each gives alone."""
    batch = torch.stack([definite(3, seed) for seed in range(4)]).view(2, 2, 3, 3)
    found = BATCHED[name](batch)
    for i in range(2):
        for j in range(2):
            alone = BATCHED[name](batch[i, j])
            torch.testing.assert_close(found[i, j], alone, rtol=1e-7, atol=1e-9)


def test_transformed_takes_batches_of_either_kind():
    batch = torch.stack([indefinite(3, seed) for seed in range(4)])
    full = torch.stack([definite(3, seed) for seed in range(4)])
    diagonal = exact.equilibration(batch)
    for found, given in ((exact.transformed(batch, diagonal), diagonal),
                         (exact.transformed(batch, full), full)):  # fmt: skip
        for i in range(4):
            torch.testing.assert_close(found[i], exact.transformed(batch[i], given[i]))
