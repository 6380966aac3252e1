"""Algorithm 1 written out in NumPy, with a Hessian product of its own; only v is shared."""

import numpy as np
import pytest
import torch

from equilibrate import ALGORITHM_1, ESGD, JacobiSGD, draw
from tests.optim.loops import train

LETTERS = ALGORITHM_1 | {"damping": 0.1}
STEPS = 50
X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.random.default_rng(1).normal(size=6)
START = np.random.default_rng(2).normal(size=16) * 0.5  # W (3 x 4, row-major), then a (4)


def gradient(theta: np.ndarray) -> np.ndarray:
    """d/d theta of 1/2 mean (a . tanh(W^T x) - y)^2, by hand."""
    weights, readout = theta[:12].reshape(3, 4), theta[12:]
    hidden = np.tanh(X @ weights)
    residual = (hidden @ readout - Y) / len(Y)
    to_hidden = residual[:, None] * readout * (1 - hidden**2)
    return np.concatenate([(X.T @ to_hidden).ravel(), hidden.T @ residual])


def hessian_product(theta: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The directional derivative of `gradient`, by hand: Pearlmutter's R-operator in NumPy."""
    weights, readout = theta[:12].reshape(3, 4), theta[12:]
    r_weights, r_readout = v[:12].reshape(3, 4), v[12:]
    hidden = np.tanh(X @ weights)
    slope = 1 - hidden**2
    r_hidden = slope * (X @ r_weights)
    residual = (hidden @ readout - Y) / len(Y)
    r_residual = (r_hidden @ readout + hidden @ r_readout) / len(Y)
    r_to_hidden = (
        r_residual[:, None] * readout * slope
        + residual[:, None] * r_readout * slope
        - residual[:, None] * readout * 2 * hidden * r_hidden
    )
    r_gradient = r_hidden.T @ residual + hidden.T @ r_residual
    return np.concatenate([(X.T @ r_to_hidden).ravel(), r_gradient])


def vector(k: int, distribution: str) -> np.ndarray:
    shapes = [torch.zeros(3, 4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)]
    return np.concatenate([part.numpy().ravel() for part in draw(distribution, shapes, probe=k)])


def algorithm_1(lr: float, damping: float) -> np.ndarray:
    theta, total = START.copy(), np.zeros(16)
    for k in range(1, STEPS + 1):
        v = vector(k - 1, "gaussian")
        total += hessian_product(theta, v) ** 2
        theta = theta - lr * gradient(theta) / (np.sqrt(total / k) + damping)
    return theta


def jacobi(start: np.ndarray, total: np.ndarray, k: int, lr: float, damping: float):
    v = vector(k - 1, "rademacher")
    total = total + v * hessian_product(start, v)
    return start - lr * gradient(start) / (np.abs(total / k) + damping), total


def network() -> tuple[list[torch.Tensor], object]:
    weights = torch.tensor(START[:12].reshape(3, 4), requires_grad=True)
    readout = torch.tensor(START[12:], requires_grad=True)
    x, y = torch.tensor(X), torch.tensor(Y)
    return [weights, readout], lambda: (torch.tanh(x @ weights) @ readout - y).square().mean() / 2


def flat(parameters: list[torch.Tensor]) -> np.ndarray:
    return torch.cat([p.detach().reshape(-1) for p in parameters]).numpy().copy()


def test_the_hand_written_hessian_is_indefinite_and_right():
    columns = np.stack([hessian_product(START, e) for e in np.eye(16)])
    differences = np.stack(
        [(gradient(START + 1e-5 * e) - gradient(START - 1e-5 * e)) / 2e-5 for e in np.eye(16)]
    )
    np.testing.assert_allclose(columns, differences, atol=1e-9)
    eigenvalues = np.linalg.eigvalsh(columns)
    assert eigenvalues[0] < -1e-3 < 1e-3 < eigenvalues[-1]


@pytest.mark.parametrize("foreach", [True, False])
def test_esgd_is_algorithm_1(foreach):
    parameters, loss = network()
    train(ESGD(parameters, lr=0.01, foreach=foreach, **ALGORITHM_1), loss, STEPS)
    assert np.abs(flat(parameters) - algorithm_1(0.01, 1e-4)).max() < 1e-12


def test_jacobi_is_its_hand_written_self_at_damping_a_tenth():
    parameters, loss = network()
    train(JacobiSGD(parameters, lr=0.01, **(LETTERS | {"distribution": "rademacher"})), loss, STEPS)
    theta, total = START, np.zeros(16)
    for k in range(1, STEPS + 1):
        theta, total = jacobi(theta, total, k, 0.01, 0.1)
    assert np.abs(flat(parameters) - theta).max() < 1e-12


def test_jacobi_step_by_step_at_the_papers_damping():
    """Its diagonal passes near zero and amplifies rounding: steps start from the same point."""
    parameters, loss = network()
    settings = ALGORITHM_1 | {"distribution": "rademacher"}
    optimizer = JacobiSGD(parameters, lr=0.01, **settings)
    total = np.zeros(16)
    for k in range(1, STEPS + 1):
        before = flat(parameters)
        train(optimizer, loss, 1)
        expected, total = jacobi(before, total, k, 0.01, 1e-4)
        np.testing.assert_allclose(flat(parameters) - before, expected - before, rtol=1e-8)
