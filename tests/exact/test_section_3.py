"""Section 3, related work: AdaGrad's diagonal (T5) and the Gauss-Newton matrix (T6)."""

import pytest
import torch
from torch import nn

from equilibrate import exact, hessian
from tests.cases import LOGISTIC, logistic_hessian
from tests.exact.matrices import DOUBLE, normal


def test_t05_adagrad_divides_by_the_root_of_the_summed_squares():
    """The paper prints the exponent -1/2, which is D^-1; torch's Adagrad is the judge."""
    rate, gradients = 0.1, normal(6, 5, seed=0)
    parameter = nn.Parameter(torch.zeros(5, dtype=DOUBLE))
    optimizer = torch.optim.Adagrad([parameter], lr=rate, eps=0.0)
    for t in range(len(gradients)):
        before = parameter.detach().clone()
        parameter.grad = gradients[t].clone()
        optimizer.step()
        moved = before - parameter.detach()
        summed = gradients[: t + 1].square().sum(0)
        torch.testing.assert_close(moved, rate * gradients[t] / summed**0.5)
        as_printed = rate * gradients[t] / summed**-0.5
        assert not torch.allclose(moved, as_printed, rtol=1e-3)


ACTIVATIONS = {"tanh": torch.tanh, "sigmoid": torch.sigmoid}


class _Problem:
    """A 4-5-3 network as a function of its parameters, on ten samples."""

    def __init__(self, activation: str, seed: int) -> None:
        shapes = [(5, 4), (5,), (3, 5), (3,)]
        self.parameters = [normal(*s, seed=10 * seed + i) for i, s in enumerate(shapes)]
        self.inputs = normal(10, 4, seed=100 + seed)
        self.activation = ACTIVATIONS[activation]

    def outputs(self, p):
        return self.activation(self.inputs @ p[0].T + p[1]) @ p[2].T + p[3]

    def matrices(self, loss, parameters=None):
        """The Gauss-Newton matrix and the Hessian."""
        point = [p.detach().requires_grad_() for p in parameters or self.parameters]
        return (
            exact.gauss_newton(self.outputs, loss, point),
            hessian(loss(self.outputs(point)), point),
        )


def squared(target, reduction):
    return lambda z: getattr((z - target).square(), reduction)()


def entropy(target, reduction):
    labels = target.argmax(-1)
    return lambda z: nn.functional.cross_entropy(z, labels, reduction=reduction)


def _distance(first, second):
    return float((first - second).norm() / second.norm())


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_t06_gauss_newton_is_the_hessian_where_residuals_vanish(activation, reduction, seed):
    problem = _Problem(activation, seed)
    target = problem.outputs(problem.parameters)
    found, truth = problem.matrices(squared(target, reduction))
    torch.testing.assert_close(found, truth, rtol=1e-9, atol=1e-12)
    away, curved = problem.matrices(squared(target + 1.0, reduction))
    assert _distance(away, curved) > 0.05  # and nowhere else
    torch.testing.assert_close(away, found)  # for a squared loss G does not see the residual


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_t06_the_distance_falls_along_training_with_the_residual(seed):
    """The difference is linear in the residual: a fit to reachable targets brings it to nothing."""
    problem = _Problem("tanh", seed)
    teacher = [p + 0.3 * normal(*p.shape, seed=900 + seed) for p in problem.parameters]
    loss = squared(problem.outputs(teacher), "mean")
    parameters = [p.clone().requires_grad_() for p in problem.parameters]
    optimizer = torch.optim.LBFGS(parameters, max_iter=20, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss(problem.outputs(parameters))
        value.backward()
        return value

    distances, losses = [], []
    for _ in range(6):
        distances.append(_distance(*problem.matrices(loss, parameters)))
        losses.append(optimizer.step(closure).item())
    assert losses[-1] < 1e-3 * losses[0]
    assert distances[-1] < 0.1 * distances[0]
    assert distances[0] > 0.05


@pytest.mark.parametrize("loss", [squared, entropy], ids=["squared", "softmax"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_t06_it_is_j_transposed_times_the_loss_hessian_times_j(loss, reduction):
    """The definition, with both factors formed by other means; never indefinite."""
    problem = _Problem("sigmoid", 3)
    objective = loss(normal(10, 3, seed=8), reduction)
    jacobians = torch.func.jacrev(problem.outputs)(problem.parameters)
    j = torch.cat([part.reshape(30, -1) for part in jacobians], 1)
    z = problem.outputs(problem.parameters)
    h = torch.func.hessian(objective)(z).reshape(30, 30)
    found = exact.gauss_newton(problem.outputs, objective, problem.parameters, chunk=7)
    torch.testing.assert_close(found, j.T @ h @ j, rtol=1e-9, atol=1e-12)
    assert float(torch.linalg.eigvalsh(found)[0]) > -1e-10 * float(found.norm())
    diagonal = exact.gauss_newton_diagonal(problem.outputs, objective, problem.parameters)
    torch.testing.assert_close(diagonal, found.diagonal())


def test_t06_a_linear_model_has_its_hessian_in_closed_form():
    """Outputs linear in the parameters: G = H = X^T diag(s (1 - s)) X / n at any residual."""
    parameters, _ = LOGISTIC.parameters_and_loss()
    x = normal(12, 5, seed=1)  # the data of the case
    y = (normal(12, 1, seed=2) > 0).to(DOUBLE)
    loss = nn.functional.binary_cross_entropy_with_logits
    found = exact.gauss_newton(lambda p: x @ p[0].T, lambda z: loss(z, y), parameters)
    torch.testing.assert_close(found, logistic_hessian(parameters[0].detach()))


def test_gauss_newton_agrees_with_curvlinops():
    curvlinops = pytest.importorskip("curvlinops", reason="curvlinops is not installed")
    x, y = normal(10, 4, seed=1), normal(10, 3, seed=2)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(DOUBLE)
    parameters = list(model.parameters())
    names = [name for name, _ in model.named_parameters()]
    operator = curvlinops.GGNLinearOperator(model, nn.MSELoss(), parameters, [(x, y)])
    axes = torch.eye(sum(p.numel() for p in parameters), dtype=DOUBLE)
    found = exact.gauss_newton(
        lambda p: torch.func.functional_call(model, dict(zip(names, p, strict=True)), (x,)),
        lambda z: (z - y).square().mean(),
        parameters,
    )
    theirs = torch.as_tensor(operator @ axes, dtype=DOUBLE).detach()
    torch.testing.assert_close(found, theirs, rtol=1e-6, atol=1e-9)
