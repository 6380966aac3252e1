"""How right a way is: on the whole, and in the worst tensor that counts."""

import math

import pytest
import torch
from torch import nn

from equilibrate.monitor import ComparedProbes, Way, compare_probes
from equilibrate.monitor.probe_errors import Error, error_of

# Of two tensors: what was found of a, of b, what is true of b, and the error; a is truly 3, 4.
ERRORS = {
    "exact": ([3.0, 4.0], [1.0], [1.0], Error(0.0, 0.0, "a")),
    "one wrong": ([3.0, 4.0], [2.0], [1.0], Error(1 / math.sqrt(26), 1.0, "b")),
    "too small to count": ([3.0, 4.0], [0.02], [0.01], Error(0.002, 0.0, "a")),
    "both wrong": ([0.0, 0.0], [2.0], [1.0], Error(1.0, 1.0, "a")),
    "nothing there": ([3.0, 4.0], [2.0], [0.0], Error(0.4, 0.0, "a")),
}


@pytest.mark.parametrize(("a", "b", "true", "error"), ERRORS.values(), ids=ERRORS.keys())
def test_the_worst_tensor_is_named(a, b, true, error):
    found, right = (
        [torch.tensor(one), torch.tensor(two)] for one, two in ((a, b), ([3.0, 4.0], true))
    )
    told = error_of(found, right, ["a", "b"])
    assert told.where == error.where
    assert (told.whole, told.worst) == pytest.approx((error.whole, error.worst), abs=1e-5)


@pytest.mark.parametrize(("found", "error"), [(0.0, 0.0), (1.0, math.inf)])
def test_where_nothing_is_curved_any_product_is_wrong_and_no_tensor_is_named(found, error):
    assert error_of([torch.tensor([found])], [torch.zeros(1)], ["a"]) == Error(error, error, "")


class Sizes(nn.Module):
    """Quadratic in a tensor of size 300, a cosine of one of size 1: the width suits the first."""

    def __init__(self):
        super().__init__()
        self.large = nn.Parameter(torch.full((400,), 300.0))
        self.small = nn.Parameter(torch.linspace(-1, 1, 100))

    def forward(self):
        return self.large.square().sum() / 2 + (self.small.cos().sum() / 5)


def test_a_tensor_that_is_wrong_is_not_hidden_by_one_that_is_right():
    model = Sizes()
    by_closure = compare_probes(model, model, rounds=1).ways[2]
    assert by_closure.error < 0.05
    assert by_closure.where == "small"
    assert by_closure.worst > 0.3
    assert not by_closure.is_right
    assert f"error {by_closure.error:.2g}, the worst tensor small {by_closure.worst:.2g}" in str(
        by_closure
    )


def test_only_what_is_right_in_every_tensor_is_the_cheapest():
    right, wrong = Way("a", 3.0, 0, 0.1, worst=0.2, where="w"), Way("b", 1.0, 0, 0.1, worst=0.3)
    assert ComparedProbes(1.0, (wrong, right)).cheapest is right
    assert ComparedProbes(1.0, (wrong,)).cheapest is None
