"""Matrix-free spectra against all eigenvalues of the dense Hessian: cases times laws."""

from functools import cache

import pytest
import torch
from torch import nn

from equilibrate import LossHessian, hessian
from equilibrate.exact import transformed
from equilibrate.monitor.lanczos import lanczos
from equilibrate.monitor.spectrum import Spectrum, spectrum
from tests.cases import CASES, CONVOLUTION, DEEP

STEPS = (8, 30)


def _preconditioner(case):
    """A positive diagonal of varied size, as lists and flat."""
    parameters, _ = case.parameters_and_loss()
    flat = torch.cat([p.detach().flatten() for p in parameters]).abs() + 0.1
    pieces = torch.split(flat, [p.numel() for p in parameters])
    return [x.view(p.shape) for x, p in zip(pieces, parameters, strict=True)], flat


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "preconditioned"])
def scaled(request):
    return request.param


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def dense(request, scaled):
    """The case, whether it is preconditioned, and the exact eigenvalues."""
    case = request.param
    parameters, loss = case.parameters_and_loss()
    matrix = hessian(loss(), parameters)
    flat = _preconditioner(case)[1] if scaled else None
    matrix = matrix if flat is None else transformed(matrix, flat)
    return case, scaled, torch.linalg.eigvalsh((matrix + matrix.mT) / 2)


@cache
def _found(case, scaled, steps, seed) -> Spectrum:
    diagonal = _preconditioner(case)[0] if scaled else None
    parameters, loss = case.parameters_and_loss()
    operator = LossHessian(loss(), parameters)
    return spectrum(operator, parameters, diagonal=diagonal, steps=steps, seed=seed)


def largest(found, values):
    assert float(values[-1]) in found.largest


def smallest(found, values):
    assert float(values[0]) in found.smallest


def radius(found, values):
    assert float(values.abs().max()) in found.radius


def shares(found, values):
    ends = values.abs().max()
    # An even number of bounds: none is an end itself, which rounding may count or not.
    for bound in torch.linspace(-1.2, 1.2, 26, dtype=torch.float64) * ends:
        exact = float((values < bound).double().mean())
        interval = found.share_below(float(bound))
        assert interval.low - 1e-9 <= exact <= interval.high + 1e-9, (bound, exact, interval)


def negative(found, values):
    exact = float((values < -1e-2 * values.abs().max()).double().mean())
    assert found.negative_share.low - 1e-9 <= exact <= found.negative_share.high + 1e-9


def conditions(found, values):
    for q in (0.1, 0.5, 0.9):
        sizes = values.abs().sort().values
        at = float(sizes[min(len(sizes) - 1, int(torch.tensor(q * len(sizes)).ceil()) - 1)])
        interval = found.size_quantile(q)
        rounding = 1e-6 * float(sizes[-1])
        assert interval.low - rounding <= at <= interval.high + rounding, (q, at, interval)
        if at > rounding:
            exact = float(sizes[-1]) / at
            condition = found.condition(q)
            assert condition.low * (1 - 1e-6) <= exact <= condition.high * (1 + 1e-6)


LAWS = [largest, smallest, radius, shares, negative, conditions]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("seed", range(3))
def test_the_dense_answer_lies_in_the_interval(dense, law, steps, seed):
    case, scaled, values = dense
    law(_found(case, scaled, steps, seed), values)


@pytest.mark.parametrize("case", [CONVOLUTION, DEEP], ids=lambda case: case.name)
def test_intervals_close_in_with_more_products(case):
    """An interval that always held everything would pass the law above: these are narrow."""
    parameters, loss = case.parameters_and_loss()
    operator = LossHessian(loss(), parameters)
    few, many = (spectrum(operator, parameters, steps=m) for m in (20, 60))
    for found, allowed in ((few, 0.2), (many, 0.02)):
        for end in (found.largest, found.smallest):
            assert end.high - end.low < allowed * found.radius.value
    assert few.condition(0.95).low < many.condition(0.95).low


def test_a_small_model_is_measured_exactly(small_case):
    parameters, loss = small_case.parameters_and_loss()
    values = torch.linalg.eigvalsh(hessian(loss(), parameters))
    found = spectrum(LossHessian(loss(), parameters), parameters, steps=60, starts=2)
    assert found.complete
    torch.testing.assert_close(found.ritz[0].nodes, values, atol=1e-12, rtol=1e-9)
    low, high = float(values.abs().min()), float(values.abs().max())
    least = found.condition(0.5 / len(values))
    assert least.value == pytest.approx(high / low, rel=1e-6)


@pytest.mark.parametrize("case", [CONVOLUTION, DEEP], ids=lambda case: case.name)
def test_the_density_has_the_moments_of_the_matrix(case):
    """Over many start vectors: mean and mean square of the nodes against trace and norm.

    One start's k-th moment has standard deviation sqrt(2 mean(lambda^2k) / N) at most.
    """
    parameters, loss = case.parameters_and_loss()
    matrix = hessian(loss(), parameters)
    values = torch.linalg.eigvalsh((matrix + matrix.mT) / 2)
    starts = 16
    found = spectrum(LossHessian(loss(), parameters), parameters, steps=6, starts=starts)
    for power in (1, 2):
        moment = sum(float((r.weights * r.nodes**power).sum()) for r in found.ritz) / starts
        deviation = (2 * values.pow(2 * power).mean() / len(values) / starts).sqrt()
        assert abs(moment - float(values.pow(power).mean())) < 4 * float(deviation)


def test_the_histogram_holds_every_eigenvalue():
    parameters, loss = CONVOLUTION.parameters_and_loss()
    found = spectrum(LossHessian(loss(), parameters), parameters, steps=40)
    edges = torch.linspace(-20, 20, 41, dtype=torch.float64)
    masses = found.masses(edges)
    assert float(masses.sum()) == pytest.approx(1.0)
    values = torch.linalg.eigvalsh(hessian(loss(), parameters))
    exact = torch.histogram(values, edges).hist / len(values)
    # Three deviations of a share over two starts, see spectrum.py, in each bin.
    assert float((masses - exact).abs().max()) < 3 * (1 / (2 * 2 * (len(values) + 2))) ** 0.5


@pytest.mark.parametrize("case", [CONVOLUTION, DEEP], ids=lambda case: case.name)
def test_extremes_agree_with_scipy(case):
    linalg = pytest.importorskip("scipy.sparse.linalg")
    parameters, loss = case.parameters_and_loss()
    operator = LossHessian(loss(), parameters)
    sizes = [p.numel() for p in parameters]

    def multiply(flat):
        given = torch.from_numpy(flat.copy()).flatten().split(sizes)
        shaped = [x.view(p.shape) for x, p in zip(given, parameters, strict=True)]
        return torch.cat([x.flatten() for x in operator(shaped)]).numpy()

    wrapped = linalg.LinearOperator((sum(sizes), sum(sizes)), matvec=multiply, dtype="float64")
    ends = linalg.eigsh(wrapped, k=2, which="BE", return_eigenvectors=False)
    found = lanczos(operator, parameters, steps=60)
    expected = torch.tensor([min(ends), max(ends)])
    torch.testing.assert_close(found.nodes[[0, -1]], expected, rtol=1e-8, atol=0)


def test_float32_vectors_give_the_same_ends():
    parameters, loss = DEEP.parameters_and_loss()
    double = lanczos(LossHessian(loss(), parameters), parameters, steps=60)
    matrix = hessian(loss(), parameters).float()
    sizes = [p.numel() for p in parameters]
    single = [p.detach().float() for p in parameters]

    def multiply(vectors):
        product = matrix @ torch.cat([v.flatten() for v in vectors])
        return [x.view(p.shape) for x, p in zip(product.split(sizes), single, strict=True)]

    found = lanczos(multiply, single, steps=60)
    ends = [0, -1]
    torch.testing.assert_close(found.nodes[ends], double.nodes[ends], rtol=1e-5, atol=0)


def test_a_product_that_is_its_own_vector_is_not_written_to():
    """The Hessian of |w|^2 / 2 is the identity: autograd hands the vector itself back."""
    weight = torch.randn(7, requires_grad=True)
    found = lanczos(LossHessian(weight.square().sum() / 2, [weight]), [weight], steps=5)
    assert found.exact
    torch.testing.assert_close(found.nodes, torch.ones(1, dtype=torch.float64))


def test_no_curvature_at_all_is_zero_and_an_infinite_condition():
    weight = torch.randn(300, requires_grad=True)
    found = spectrum(LossHessian(weight.sum(), [weight]), [weight], steps=5)
    assert found.radius.value == 0
    assert found.condition(0.5).value == float("inf")
    assert found.negative_share.value == 0


def test_extremes_agree_with_curvlinops():
    """Another library's Hessian, and SciPy's recursion on it."""
    curvlinops = pytest.importorskip("curvlinops", reason="curvlinops is not installed")
    linalg = pytest.importorskip("scipy.sparse.linalg")
    model = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3)).double()
    x, y = torch.randn(30, 6, dtype=torch.float64), torch.randn(30, 3, dtype=torch.float64)
    parameters = list(model.parameters())
    operator = curvlinops.HessianLinearOperator(model, nn.MSELoss(), parameters, [(x, y)])
    ends = linalg.eigsh(operator.to_scipy(), k=2, which="BE", return_eigenvectors=False)
    loss = nn.functional.mse_loss(model(x), y)
    found = spectrum(LossHessian(loss, parameters), parameters, steps=60)
    assert not found.complete
    assert found.largest.value == pytest.approx(max(ends), rel=1e-6)
    assert found.smallest.value == pytest.approx(min(ends), rel=1e-6)
