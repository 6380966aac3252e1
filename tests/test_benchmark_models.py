"""The models of the speed benchmarks: a share of a batch is that share."""

import pytest
import torch

from benchmarks.models import MODELS


@pytest.fixture(params=list(MODELS))
def problem(request):
    return MODELS[request.param](torch.device("cpu"), True)


def test_a_quarter_of_a_batch_has_a_quarter_of_its_cases(problem):
    seen = []
    problem.model.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    with torch.no_grad():
        problem.loss(1.0)
        problem.loss(0.25)
    whole, quarter = seen
    assert whole == 4 * quarter


def test_a_share_that_no_number_of_cases_has_is_refused(problem):
    with pytest.raises(ValueError, match="take another batch"):
        problem.loss(1 / 3)
