"""The inequalities of the theory on matrices that hypothesis makes up, looking for a breach."""

import math

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from equilibrate import exact
from tests.exact.matrices import DOUBLE

# Conditioning up to 1e8 leaves eight digits: far more than the slack asks for.
WORST = 1e8
SLACK = 1 + 1e-6


@st.composite
def symmetric(draw):
    """A symmetric matrix of 1 to 6 rows: entries of both signs over eight decades, some zero."""
    size = draw(st.integers(1, 6))
    entry = st.one_of(
        st.just(0.0),
        st.builds(lambda sign, power: sign * 10**power, st.sampled_from([-1, 1]), st.floats(-4, 4)),
    )
    values = draw(st.lists(entry, min_size=size * size, max_size=size * size))
    square = torch.tensor(values, dtype=DOUBLE).view(size, size)
    matrix = torch.triu(square) + torch.triu(square, 1).T
    assume(float(exact.condition_number(matrix)) < WORST)
    return matrix


LAWS = settings(max_examples=60, deadline=None)


@LAWS
@given(symmetric())
def test_t09_symmetric_is_at_least_as_well_conditioned_as_one_sided(matrix):
    d = exact.equilibration(matrix)
    one_sided = exact.condition_number(exact.left_scaled(matrix, d))
    assert float(exact.condition_number(exact.transformed(matrix, d))) <= float(one_sided) * SLACK


@LAWS
@given(symmetric(), st.lists(st.floats(-3, 3), min_size=6, max_size=6))
def test_t10_t15_one_sided_row_equilibration_is_near_the_best_and_has_the_least_bound(matrix, logs):
    size = len(matrix)
    d = 10 ** torch.tensor(logs[:size], dtype=DOUBLE)
    ours = exact.left_scaled(matrix, exact.equilibration(matrix))
    other = exact.left_scaled(matrix, d)
    best = math.sqrt(size) * float(exact.condition_number(other))
    assert float(exact.condition_number(ours)) <= best * SLACK
    least = float(exact.log_guggenheimer_bound(ours))
    assert least <= float(exact.log_guggenheimer_bound(other)) + 1e-6


@LAWS
@given(symmetric())
def test_t11_t12_the_bound_holds_and_equilibration_never_raises_it(matrix):
    bound = float(exact.log_guggenheimer_bound(matrix))
    assert math.log(float(exact.condition_number(matrix))) < bound + 1e-6
    gain = float(exact.log_equilibration_improvement(matrix))
    assert gain >= 0
    both = exact.transformed(matrix, exact.equilibration(matrix))
    assert float(exact.log_guggenheimer_bound(both)) <= bound - gain + 1e-6


@LAWS
@given(symmetric())
def test_t18_the_chain(matrix):
    values, vectors = torch.linalg.eigh(matrix)
    weights = vectors.square()
    by_diagonal = 1 / (weights @ values.abs())
    assert bool((1 / exact.equilibration(matrix) <= by_diagonal * SLACK).all())
    assert bool((by_diagonal <= (weights @ (1 / values.abs())) * SLACK).all())


@LAWS
@given(symmetric())
def test_t20_the_radius_is_at_most_root_n(matrix):
    scaled = exact.transformed(matrix, exact.equilibration(matrix))
    assert float(exact.spectral_radius(scaled)) <= math.sqrt(len(matrix)) * SLACK
