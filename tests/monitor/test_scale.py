"""A power of two on the loss is a power of two on its curvature, and nothing else: bit for bit."""

import warnings
from functools import cache

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD, LossHessian
from equilibrate.monitor import Monitor, Probes
from equilibrate.monitor.errors import one_probe_error
from equilibrate.monitor.lanczos import lanczos
from tests.cases import DEEP

# Even, so that the root of a diagonal has every bit, too.
SCALES = [
    (torch.float32, -84),
    (torch.float32, -34),
    (torch.float32, 64),
    (torch.float32, 84),
    (torch.float64, -600),
    (torch.float64, 600),
]
EVERY_SCALE = pytest.mark.parametrize(("dtype", "exponent"), SCALES)
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "esgd": lambda p: ESGD(p, lr=0.1),
    "jacobi": lambda p: JacobiSGD(p, lr=0.1),
}
SCALED = ("loss", "sharpness", "smallest")  # and diagonals; learning rates by the inverse


def _problem(dtype, width):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1)).to(dtype)
    x, y = torch.randn(64, 4, dtype=dtype), torch.randn(64, 1, dtype=dtype)
    return model, lambda: nn.functional.mse_loss(model(x), y)


@cache
def _record(make, dtype, width, factor):
    model, loss = _problem(dtype, width)
    optimizer = make(model.parameters())
    value = factor * loss()
    if hasattr(optimizer, "probe"):
        optimizer.probe(value)
    return Monitor(model, optimizer, lambda r: None, budget=None, layer_spectra=9)(value)


def _power(name, record):
    """By which power of the factor an entry of the record grows."""
    entry = name.removesuffix("_low").removesuffix("_high")
    if name.endswith("/sharpness_times_lr"):  # of SGD, whose step is not divided
        return int(record["preconditioned/diagonal"].startswith("monitor's"))
    if "preconditioned" in name:
        return 0
    if "/learning_rate/" in name:
        return -1
    return int("/diagonal/" in name or entry.rpartition("/")[2] in SCALED)


@EVERY_SCALE
@pytest.mark.parametrize("width", [4, 16], ids=["all eigenvalues", "lanczos"])
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_a_record_is_the_same_at_any_scale_of_the_loss(make, width, dtype, exponent):
    factor = 2.0**exponent
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain, scaled = (_record(make, dtype, width, f) for f in (1.0, factor))
    assert plain.keys() == scaled.keys()
    assert plain["preconditioned/diagonal"] == scaled["preconditioned/diagonal"]
    for name in plain.keys() - {"seconds", "preconditioned/diagonal"}:
        found = scaled[name] / factor ** _power(name, plain)
        assert found == pytest.approx(plain[name], rel=0, abs=0, nan_ok=True), name


@EVERY_SCALE
def test_probes_are_the_same_at_any_scale(dtype, exponent):
    model, loss = _problem(dtype, 8)
    parameters, factor = list(model.parameters()), 2.0**exponent
    plain, scaled = Probes(parameters), Probes(parameters)
    for _ in range(4):
        plain.add(LossHessian(loss(), parameters))
        scaled.add(LossHessian(factor * loss(), parameters))
    for kind in (Probes.equilibration, Probes.jacobi, lambda p: p.mean):
        for own, other in zip(kind(plain), kind(scaled), strict=True):
            assert torch.equal(own * factor, other)
    for i in range(len(parameters)):
        assert torch.equal(plain.history(i) * factor, scaled.history(i))
        assert one_probe_error(plain.history(i)) == one_probe_error(scaled.history(i))


def test_a_first_product_of_zero_sets_no_unit():
    weight = torch.ones(1)
    found = Probes([weight])
    for factor in (0.0, 2.0**80):
        found.add(lambda v, factor=factor: [factor * v[0]])
    # The root of the mean of 0 and 2^160, which float32 does not have.
    torch.testing.assert_close(found.equilibration(), [torch.tensor([2.0**79.5])])


# Not -600 and 600 together: the eigenvalues themselves would be out of range.
@pytest.mark.parametrize(
    ("exponent", "divided"), [(-600, -600), (-600, 0), (0, -600), (0, 600), (600, 0), (600, 600)]
)
def test_nodes_are_in_the_units_of_hessian_and_diagonal(exponent, divided):
    parameters, loss = DEEP.parameters_and_loss()
    operator = LossHessian(loss(), parameters)
    diagonal = [p.detach().abs() + 0.1 for p in parameters]
    plain = lanczos(operator, parameters, steps=12, diagonal=diagonal)
    scaled = lanczos(
        lambda v: [2.0**exponent * x for x in operator(v)],
        parameters,
        steps=12,
        diagonal=[2.0**divided * d for d in diagonal],
    )
    assert torch.equal(scaled.nodes, plain.nodes * 2.0**exponent / 2.0**divided)
    assert torch.equal(scaled.weights, plain.weights)
    assert scaled.exact == plain.exact


def test_curvature_that_is_not_finite_is_said():
    weight = torch.full((3,), 1e-30, requires_grad=True)  # w^-0.5 is finite, its derivatives not
    loss = weight.rsqrt().sum()
    monitor = Monitor([("w", weight)], torch.optim.SGD([weight]), lambda r: None)
    with pytest.warns(UserWarning, match="curvature is not finite"):
        record = monitor(loss)
    assert "sharpness" not in record
