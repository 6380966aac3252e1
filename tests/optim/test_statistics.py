"""`diagonal()`, measured through the public loop, against the dense Hessian: errors as derived.

Each run keeps the parameters where they are (lr = 0), so that k probes measure one Hessian. Over
runs with independent seeds the mean of z^2 = (error / predicted deviation)^2 is near one. How near
it must be follows from the runs themselves: their means are independent, so the mean over all has a
standard error, and five of it are allowed for.
"""

import math

import pytest
import torch

from equilibrate import ESGD, JacobiSGD, exact, hessian
from tests.cases import CASES, LOGISTIC, Case, logistic_hessian
from tests.optim.loops import train

RUNS = 30


def assert_mean_is_one(z_squared: torch.Tensor) -> None:
    """The mean of z^2 over runs (rows) and coordinates is one within five standard errors."""
    runs = z_squared.mean(1)
    error = runs.std() / math.sqrt(len(runs))
    assert error < 0.25, "too few runs to tell"
    assert abs(runs.mean() - 1) < 5 * error


# k probes, either one at each of k steps, or k vectors of the warm-up on one loss.
SCHEDULES = {
    "20 steps": ({"warmup_probes": 1}, 20),
    "warm-up of 80": ({"warmup_probes": 80}, 1),
}


def _flat(tensors) -> torch.Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


def _measured(case: Case, optimizer_class, schedule: str, distribution: str, signed: bool):
    settings, steps = SCHEDULES[schedule]
    for seed in range(RUNS):
        parameters, loss = case.parameters_and_loss()
        optimizer = optimizer_class(
            parameters, lr=0.0, decay=None, probe_every=1, seed=seed, distribution=distribution,
            **settings,
        )  # fmt: skip
        train(optimizer, loss, steps)
        stored = [optimizer.state[p]["diagonal"] for p in parameters]
        yield _flat(stored if signed else optimizer.diagonal())


def _truth(case: Case) -> torch.Tensor:
    parameters, loss = case.parameters_and_loss()
    return hessian(loss(), parameters)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equilibration_error_falls_as_0_71_over_root_k(case, schedule):
    """(D/r)^2 is chi-squared over its k degrees: E[(D/r - 1)^2] = 2 - 2 E[D/r], near 1/(2k)."""
    k = 20 if schedule == "20 steps" else 80
    mean_root = math.sqrt(2 / k) * math.exp(math.lgamma((k + 1) / 2) - math.lgamma(k / 2))
    predicted = 2 - 2 * mean_root
    assert predicted == pytest.approx(0.5 / k, rel=0.02)
    norms = exact.equilibration(_truth(case))
    found = torch.stack(list(_measured(case, ESGD, schedule, "gaussian", False)))
    z_squared = ((found / norms - 1).square() / predicted)[:, norms > 1e-9 * norms.max()]
    assert_mean_is_one(z_squared)


@pytest.mark.parametrize("distribution", ["rademacher", "gaussian"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_jacobi_error_is_that_of_its_derived_variance(case, schedule, distribution):
    """Variance (r^2 - H_ii^2)/k with signs, (r^2 + H_ii^2)/k with normals, of the signed mean."""
    k = 20 if schedule == "20 steps" else 80
    matrix = _truth(case)
    norms, diagonal = exact.equilibration(matrix), matrix.diagonal()
    sign = {"rademacher": -1, "gaussian": 1}[distribution]
    variance = (norms.square() + sign * diagonal.square()) / k
    found = torch.stack(list(_measured(case, JacobiSGD, schedule, distribution, True)))
    certain = variance <= 1e-12 * norms.square()
    torch.testing.assert_close(
        found[:, certain], diagonal[certain].expand(RUNS, -1), rtol=1e-9, atol=1e-12
    )
    z_squared = ((found - diagonal).square() / variance)[:, ~certain]
    assert_mean_is_one(z_squared)


def test_signs_are_never_worse_than_normals_for_equilibration(case):
    """Var (Hv)_i^2 = 2 r^4 - 2 sum_j H_ij^4 with signs, 2 r^4 with normals."""
    matrix = _truth(case)
    norms = exact.equilibration(matrix)
    seen = norms > 1e-9 * norms.max()
    kurtosis = (matrix**4).sum(1) / norms**4
    found = torch.stack(list(_measured(case, ESGD, "warm-up of 80", "rademacher", False)))
    predicted = ((1 - kurtosis) / (2 * 80))[seen]
    assert (predicted <= 0.5 / 80 + 1e-15).all()
    random = predicted > 1e-6  # a row with one entry is exact with signs
    assert_mean_is_one(((found / norms - 1).square()[:, seen] / predicted)[:, random])


def test_the_closed_form_case_against_its_own_formula():
    parameters, _ = LOGISTIC.parameters_and_loss()
    norms = exact.equilibration(logistic_hessian(parameters[0].detach()))
    found = torch.stack(list(_measured(LOGISTIC, ESGD, "warm-up of 80", "gaussian", False)))
    assert_mean_is_one((found / norms - 1).square() * 160)


def test_one_case_has_a_thousand_parameters():
    assert max(sum(p.numel() for p in c.parameters_and_loss()[0]) for c in CASES) >= 1000
