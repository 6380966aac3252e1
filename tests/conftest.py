"""Every test runs on the cases of `cases.py`, from a fixed state of torch's global generator."""

import os

import pytest
import torch
from hypothesis import settings

from tests.cases import CASES, SMALL, Case

# No test asserts a time: a loaded machine may take long over an example.
# The same examples each time where a red run would stop others; new ones at every other place.
settings.register_profile("patient", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("patient")


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
