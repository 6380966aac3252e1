"""Probing a part of the batch: what it estimates (CLAIMS T17), and that the step is unmoved by it.

Over random parts of b cases, E[(Hv)_i^2] = |row i of the mean H|^2 + sum_j Var(H_ij) / b, so that a
smaller part gives a larger diagonal; Jacobi's mean does not depend on b.
"""

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from tests.cases import NETWORK
from tests.optim.laws import assert_same

CASES, SIZE, PROBES = 50, 4, 2000


def _hessians() -> torch.Tensor:
    matrices = torch.randn(CASES, SIZE, SIZE, dtype=torch.float64)
    return matrices + matrices.mT + 2 * torch.eye(SIZE, dtype=torch.float64)


def _measured(kind, matrices, size):
    """Return the diagonal after many probes, each on a part drawn with replacement."""
    weight = nn.Parameter(torch.ones(SIZE, dtype=torch.float64))
    optimizer = kind([weight], decay=None, seed=size)

    def losses():
        for _ in range(PROBES):
            part = matrices[torch.randint(CASES, (size,))].mean(0)
            yield (weight @ part @ weight) / 2

    optimizer.calibrate(losses())
    return optimizer.diagonal()[0]


@pytest.mark.parametrize("size", [2, 8])
def test_the_square_grows_by_the_variance_over_the_size_of_the_part(size):
    matrices = _hessians()
    between = matrices.var(0, correction=0).sum(1) / size
    expected = matrices.mean(0).square().sum(1) + between
    found = _measured(ESGD, matrices, size).square()
    # (Hv)^2 deviates by sqrt(2) times its mean if Hv is normal, by less than 2 here; five errors.
    error = 5 * 2 / PROBES**0.5
    torch.testing.assert_close(found, expected, rtol=error, atol=0)
    assert bool((between > 2 * error * expected).any()) or size > 2  # else nothing was tested


def test_jacobi_does_not_depend_on_the_part():
    matrices = _hessians()
    expected = matrices.mean(0).diagonal().abs()
    for size in (2, 8):
        noise = (matrices.square().mean(0).sum(1) / PROBES).sqrt()
        assert bool(((_measured(JacobiSGD, matrices, size) - expected).abs() < 6 * noise).all())


def test_a_loss_of_its_own_may_be_probed_and_another_backpropagated():
    """The recipe of docs/speed.md: the gradient is that of the whole batch, to the bit."""
    ends = []
    for probing in (True, False):
        parameters, loss = NETWORK.parameters_and_loss()
        optimizer = ESGD(parameters, lr=0.01, probe_every=2, warmup_probes=3)
        for _ in range(5):
            if probing and optimizer.probe_due:
                optimizer.probe(loss())  # the same cases here: then nothing may differ
            whole = loss()
            if not probing:
                optimizer.probe(whole)
            whole.backward()
            optimizer.step()
            optimizer.zero_grad()
        ends.append([p.detach() for p in parameters])
    assert_same(*ends)
