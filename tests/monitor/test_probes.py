"""Both diagonals, their errors and their distances against the dense answer."""

import math
from functools import cache

import pytest
import torch

from equilibrate import LossHessian, cosine_distance, hessian
from equilibrate.exact import equilibration, jacobi
from equilibrate.monitor import distances, errors
from equilibrate.monitor.probes import Probes, sampled_elements
from tests.cases import CASES, DEEP, NETWORK

PROBES = 64


@cache
def probed(case, count=PROBES, seed=0):
    parameters, loss = case.parameters_and_loss()
    found = Probes(parameters, seed=seed)
    operator = LossHessian(loss(), parameters)
    for _ in range(count):
        found.add(operator)
    return found


def flat(parts):
    return torch.cat([p.detach().flatten() for p in parts])


@cache
def dense(case):
    parameters, loss = case.parameters_and_loss()
    return hessian(loss(), parameters)


def test_two_means_hold_both_diagonals(case):
    """Mean squares are unbiased with variance 2 r^4 / k at most, means with r^2 / k: z-scores."""
    matrix, found = dense(case), probed(case, 400)
    rows = equilibration(matrix).square()
    live = rows > 1e-12 * rows.max()
    z = (flat(found.mean_square) - rows)[live] / (rows[live] * (2 / 400) ** 0.5)
    assert float(z.abs().max()) < 5.5
    z = (flat(found.mean) - matrix.diagonal())[live] / (rows[live] / 400).sqrt()
    assert float(z.abs().max()) < 5.5
    variance = torch.cat([found.jacobi_variance(i).flatten() for i in range(len(found.mean))])
    true = (rows - matrix.diagonal().square()) / 400
    assert float(variance.sum()) == pytest.approx(float(true.sum()), rel=0.25)


def test_the_history_of_a_small_model_is_the_whole_of_it():
    found = probed(NETWORK)
    history = torch.cat([found.history(i) for i in range(len(found.mean))], 1)
    torch.testing.assert_close(history.mean(0), flat(found.mean))
    torch.testing.assert_close(history.square().mean(0), flat(found.mean_square))


def test_a_large_tensor_is_sampled_and_torch_s_generator_left_alone():
    before = torch.get_rng_state()
    elements = sampled_elements(torch.zeros(100_000), 50)
    assert torch.equal(before, torch.get_rng_state())
    assert len(elements) == 50
    assert int(elements.max()) < 100_000
    assert float(elements.double().mean()) == pytest.approx(50_000, abs=4 * 100_000 / 600**0.5)


def _one_probe_truth(matrix):
    """sqrt(Var(h^2)) / (2 r^2) per row for signs: Var(h^2) = 2 (r^4 - sum H_ij^4)."""
    rows = matrix.square().sum(1)
    live = rows > 1e-12 * rows.mean()
    share = 2 * (rows.square() - matrix.pow(4).sum(1))[live] / rows[live].square()
    return math.sqrt(float(share.mean())) / 2


@pytest.mark.parametrize("one", CASES[1:], ids=lambda case: case.name)
def test_the_error_of_one_probe_is_the_formula_s(one):
    found = probed(one, 400)
    history = torch.cat([found.history(i) for i in range(len(found.mean))], 1)
    # 400 probes know a variance of squares to about sqrt(8/400) = 14% an element, correlated.
    assert errors.one_probe_error(history) == pytest.approx(_one_probe_truth(dense(one)), rel=0.15)


def test_errors_fall_with_the_root_of_the_probes():
    found = probed(DEEP, 256)
    history = torch.cat([found.history(i) for i in range(len(found.mean))], 1)
    measured = errors.error_by_probes(history, [4, 16, 64])
    law = [_one_probe_truth(dense(DEEP)) / math.sqrt(k) for k in (4, 16, 64)]
    assert measured == pytest.approx(law, rel=0.15)


def test_batches_are_told_from_probes():
    """Row norms drawn anew for each batch, with a known spread, on top of the probes' noise."""
    generator = torch.Generator().manual_seed(0)
    batches, probes, elements, spread = 40, 8, 400, 0.2
    level = 1 + spread * torch.randn(batches, 1, elements, generator=generator).clamp(-3, 3)
    history = level * torch.randn(batches, probes, elements, generator=generator)
    names = [b for b in range(batches) for _ in range(probes)]
    by_probes, by_batch = errors.batch_error(history.flatten(0, 1), names)
    # D^2 = level^2: relative deviation of level^2 is 2 spread, halved again for D (delta method).
    assert by_batch == pytest.approx(spread, rel=0.1)
    assert by_probes == pytest.approx((2 / probes) ** 0.5 / 2, rel=0.1)
    assert errors.batch_error(torch.randn(64, 400, generator=generator), [0, 1] * 32)[1] < 0.05


def _distance(found, kept):
    total = distances.Sums()
    for i in range(len(found.mean)):
        h = found.history(i)[kept]
        mean, square = h.mean(0), h.square().mean(0)
        error = errors.one_probe_error(h) / math.sqrt(len(h))
        variance = (square - mean.square()).clamp(min=0) / (len(h) - 1)
        total += distances.with_jacobi(
            square.sqrt(), mean, variance, 0.0 if math.isnan(error) else error
        )
    return total.distance()


@pytest.mark.parametrize("count", [16, 64, 256])
@pytest.mark.parametrize("seed", range(3))
def test_the_true_distance_from_jacobi_lies_in_the_interval(case, count, seed):
    matrix = dense(case)
    exact = float(cosine_distance(equilibration(matrix), jacobi(matrix)))
    found = probed(case, count, seed)
    interval = _distance(found, torch.arange(count))
    chance = 2 * distances.jackknife(lambda kept: _distance(found, kept).value, count)
    assert interval.low - chance <= exact <= interval.high + chance


def test_noise_alone_is_not_taken_for_a_distance_of_one_fifth():
    """diag(H) = 0 nearly everywhere: the plain distance shows the folded normal, ours does not."""
    generator = torch.Generator().manual_seed(0)
    rows, k = torch.ones(20_000), 100
    truth = torch.zeros(20_000)
    truth[:200] = 1.0
    mean = truth + torch.randn(20_000, generator=generator) / math.sqrt(k)
    variance = torch.full_like(mean, 1 / k)
    plain = float(cosine_distance(rows, mean.abs()))
    exact = float(cosine_distance(rows, truth))
    sums = distances.with_jacobi(rows, mean, variance)
    # The noise of one squared mean, 1/k with deviation sqrt(2)/k, over 20,000 of them: 200 +- 1.4,
    # and 4 s_i times the 200 that are not zero: +- 2.8.
    assert sums.second == pytest.approx(200, abs=4 * 3.2)
    assert float(mean.square().sum()) > 380  # half of the plain norm is noise
    found = sums.distance()
    assert exact == pytest.approx(0.9)
    assert plain < 0.45
    assert exact in found
    assert abs(found.value - exact) < 0.8 * abs(plain - exact)


def test_roots_of_mean_squares_are_not_short():
    generator = torch.Generator().manual_seed(0)
    rows, k = torch.rand(5000, generator=generator) + 0.5, 16
    measured = (rows * torch.randn(k, 5000, generator=generator)).square().mean(0).sqrt()
    plain = float(cosine_distance(rows, measured))
    error = (0.5 / k) ** 0.5
    assert plain > 0.01
    zeros = torch.zeros_like(rows)
    for sums in (
        distances.between_roots(rows, measured, (0.0, error)),
        distances.between_roots(measured, rows, (error, 0.0)),
        distances.with_jacobi(measured, rows, zeros, error),
    ):
        # The chance in 5,000 products of relative error 0.18 is 0.0025.
        assert sums.product**2 / (sums.first * sums.second) == pytest.approx(1.0, abs=0.01)
        assert sums.distance().value == pytest.approx(0.0, abs=0.005)
