"""Every test runs on the cases of `cases.py`, from a fixed state of torch's global generator."""

import pytest
import torch

from tests.cases import CASES, SMALL, Case


@pytest.fixture(autouse=True)
def _fixed_generator() -> None:
    torch.manual_seed(1234)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(params=SMALL, ids=lambda case: case.name)
def small_case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found
