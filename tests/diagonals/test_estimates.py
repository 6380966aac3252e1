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


@pytest.mark.parametrize("exponent", [-100, -64, 64, 100])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_power_of_two_on_the_hessian_changes_no_other_bit(name, distribution, exponent):
    """Float32 ends at 2^128: the square of 2^64 is beyond it, that of 2^-100 below 2^-149."""
    estimate, _ = ESTIMATORS[name]
    matrix = torch.randn(6, 6, generator=torch.Generator().manual_seed(2))

    def found(matrix):
        like = [torch.zeros(6)]
        return estimate(lambda v: [matrix @ v[0]], like, probes=20, distribution=distribution)

    scaled, plain = found(matrix * 2.0**exponent), found(matrix)
    assert torch.equal(scaled.value[0], plain.value[0] * 2.0**exponent)
    assert torch.equal(scaled.standard_error[0], plain.standard_error[0] * 2.0**exponent)
    assert (plain.standard_error[0] > 0).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_elements_of_one_tensor_may_lie_far_apart(name):
    """Signs on a diagonal matrix: both estimates are exact after any number of probes."""
    estimate, _ = ESTIMATORS[name]
    diagonal = torch.tensor([0.0, 1e-40, 1e-30, 1.0, 1e30, 3e38])  # the second is subnormal
    found = estimate(
        lambda v: [diagonal * v[0]], [torch.zeros(6)], probes=3, distribution="rademacher"
    )
    torch.testing.assert_close(found.value[0], diagonal, rtol=2 * 2**-24, atol=2**-149)
    assert found.standard_error[0].tolist() == [0.0] * 6


def test_one_probe_is_too_few_for_an_error():
    with pytest.raises(ValueError, match="at least 2"):
        estimate_jacobi(lambda v: v, [torch.zeros(2)], probes=1)


def test_weights_are_a_running_mean_or_forget_per_step():
    assert [next_weight(float(k), 20, None) for k in range(3)] == [1.0, 2.0, 3.0]
    weight = 0.0
    for _ in range(5000):
        weight = next_weight(weight, 20, 0.9995)
    assert weight == pytest.approx(1 / (1 - 0.9995**20))
