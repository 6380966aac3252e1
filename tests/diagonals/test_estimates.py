"""Estimates against the dense answer: unbiased, with an honest error that falls as derived."""

import math

import pytest
import torch

from equilibrate import estimate_equilibration, estimate_jacobi, exact, hessian
from equilibrate.curvature import DISTRIBUTIONS, LossHessian
from equilibrate.diagonals.averaging import next_weight

ESTIMATORS = {
    "equilibration": (estimate_equilibration, exact.equilibration),
    "jacobi": (estimate_jacobi, exact.jacobi),
}
PROBES = 400


def _flat(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_dense_answer_lies_within_the_standard_error(case, name, distribution):
    """z = (estimate - truth) / standard error is near N(0, 1): its mean square is near one.

    Coordinates share their vectors and so are dependent, which widens the mean of z^2; and the
    absolute value folds small Jacobi entries over. 0.4 to 2.5 is what four hundred probes allow.
    """
    estimate, truth = ESTIMATORS[name]
    parameters, loss = case.parameters_and_loss()
    matrix = hessian(loss(), parameters)
    found = estimate(
        LossHessian(loss(), parameters), parameters, probes=PROBES, distribution=distribution
    )
    error = _flat(found.standard_error)
    off = _flat(found.value) - truth(matrix)
    certain = error <= 1e-9 * _flat(found.value)
    assert (off[certain].abs() <= 1e-9 * exact.equilibration(matrix)[certain] + 1e-12).all()
    z = (off / error)[~certain]
    if len(z):
        assert 0.4 / math.sqrt(len(z)) < z.square().mean().sqrt() < 2.5


@pytest.mark.parametrize(("name", "distribution"), [("equilibration", "gaussian")])
def test_equilibration_error_is_0_71_over_root_k(case, name, distribution):
    parameters, loss = case.parameters_and_loss()
    truth = exact.equilibration(hessian(loss(), parameters))
    operator = LossHessian(loss(), parameters)
    relative = [
        _flat(estimate_equilibration(operator, parameters, probes=100, seed=seed).value) / truth - 1
        for seed in range(20)
    ]
    rms = torch.stack(relative).square().mean().sqrt()
    # sd of the rms over 20 independent runs: at worst (all coordinates alike) 1/sqrt(2*20) = 16%.
    assert rms == pytest.approx(math.sqrt(0.5 / 100), rel=5 * 0.16)


def test_one_probe_is_too_few_for_an_error():
    with pytest.raises(ValueError, match="at least 2"):
        estimate_jacobi(lambda v: v, [torch.zeros(2)], probes=1)


def test_weights_are_a_running_mean_or_forget_per_step():
    assert [next_weight(float(k), 20, None) for k in range(3)] == [1.0, 2.0, 3.0]
    weight = 0.0
    for _ in range(5000):
        weight = next_weight(weight, 20, 0.9995)
    assert weight == pytest.approx(1 / (1 - 0.9995**20))
