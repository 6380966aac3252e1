"""The processes of the scenarios end with the tests."""

import pytest

from tests.distributed import launching


@pytest.fixture(scope="session", autouse=True)
def _end_the_ranks():
    yield
    launching.close()
