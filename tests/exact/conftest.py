"""The theorems of this folder run over the matrices of `matrices.py`."""

import pytest

from tests.exact.matrices import MATRICES, MatrixCase


@pytest.fixture(params=MATRICES, ids=lambda case: case.name)
def matrix_case(request: pytest.FixtureRequest) -> MatrixCase:
    found: MatrixCase = request.param
    return found


@pytest.fixture
def matrix(matrix_case):
    return matrix_case.matrix
