"""Every way to a product H v, on every case, against the dense Hessian."""

import math

import pytest
import torch
from torch import nn

from equilibrate import (
    difference_product,
    draw,
    estimate_equilibration,
    function_product,
    hessian,
    loss_product,
)
from equilibrate.curvature import LossHessian, split_like
from equilibrate.curvature.differences import default_step, relative_step
from tests.cases import LOGISTIC, NETWORK, Case, logistic_hessian


def _flat(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def _gradient_function(parameters, loss):
    def gradient(values):
        with torch.no_grad():
            for p, value in zip(parameters, values, strict=True):
                p.copy_(value)
        return torch.autograd.grad(loss(), parameters)

    return gradient


def _by_function(case: Case, vectors, **options):
    values, function = case.values_and_function()
    return function_product(function, values, vectors, **options)


def _dense_product(case, vectors):
    parameters, loss = case.parameters_and_loss()
    return split_like(hessian(loss(), parameters) @ _flat(vectors), parameters)


@pytest.mark.parametrize("way", ["loss", "function"])
def test_exact_products_equal_the_dense_hessian(case, way):
    parameters, loss = case.parameters_and_loss()
    vectors = draw("gaussian", parameters, seed=1)
    if way == "loss":
        found = loss_product(loss(), parameters, vectors)
    else:
        found = _by_function(case, vectors)
    torch.testing.assert_close(found, _dense_product(case, vectors), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("way", ["loss", "function", "differences"])
def test_several_vectors_at_once_equal_one_at_a_time(case, way):
    parameters, loss = case.parameters_and_loss()
    several = [draw("rademacher", parameters, seed=2, probe=k) for k in range(3)]
    stacked = [torch.stack(parts) for parts in zip(*several, strict=True)]
    if way == "loss":
        found = loss_product(loss(), parameters, stacked, stacked=True)
    elif way == "function":
        found = _by_function(case, stacked, stacked=True)
    else:
        gradient, point = (
            _gradient_function(parameters, loss),
            [p.detach().clone() for p in parameters],
        )
        found = difference_product(gradient, point, stacked, stacked=True)
        gradient(point)  # back to where it started
    tolerance = 1e-11 if way != "differences" else 1e-6
    for k, vectors in enumerate(several):
        one = loss_product(loss(), parameters, vectors)
        torch.testing.assert_close([f[k] for f in found], one, rtol=tolerance, atol=tolerance)


def test_differences_are_as_exact_as_the_step_predicts(case):
    """Error = rounding u |g| / e + truncation e^2/6 |g'''|, the latter measured at 64 e.

    There it is 64^2 times as large and rounding 64 times smaller, so it stands alone.
    """
    parameters, loss = case.parameters_and_loss()
    vectors = draw("rademacher", parameters, seed=3)
    exact = _flat(loss_product(loss(), parameters, vectors))
    gradient = _gradient_function(parameters, loss)
    point = [p.detach().clone() for p in parameters]
    size = _flat(gradient(point)).norm()
    step = default_step(point)
    one, two, coarse = (
        _flat(difference_product(gradient, point, vectors, step=s))
        for s in (step, 2 * step, 64 * step)
    )
    truncation = torch.linalg.vector_norm(coarse - exact) / 64**2
    # A gradient is a sum over some hundred roundings; they add up like their square root.
    rounding = 20 * torch.finfo(torch.float64).eps * size / step
    assert torch.linalg.vector_norm(one - exact) <= 2 * truncation + rounding
    assert torch.linalg.vector_norm(two - exact) <= 8 * truncation + rounding


def test_the_step_is_near_the_best_of_a_range():
    """(3u)^(1/3) in units of the parameters: no step within three decades is five times better.

    Errors are averaged over vectors, for with one of them rounding may cancel by luck.
    """
    parameters, loss = NETWORK.parameters_and_loss()
    several = [draw("rademacher", parameters, seed=s) for s in range(8)]
    exact = [_flat(loss_product(loss(), parameters, vectors)) for vectors in several]
    gradient = _gradient_function(parameters, loss)
    point = [p.detach().clone() for p in parameters]

    def error(step):
        found = [difference_product(gradient, point, v, step=step) for v in several]
        return sum((_flat(f) - e).norm() for f, e in zip(found, exact, strict=True))

    chosen = error(default_step(point))
    best = min(error(default_step(point) * 10 ** (k / 4)) for k in range(-6, 7))
    assert chosen < 5 * best


def test_steps_grow_with_the_roundoff():
    steps = [
        relative_step(d) for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    ]
    assert steps == sorted(steps)
    for dtype, step in zip((torch.float64, torch.float32), steps, strict=False):
        assert step**3 == pytest.approx(1.5 * torch.finfo(dtype).eps)


def test_the_dense_hessian_is_the_closed_form_of_logistic_regression():
    parameters, loss = LOGISTIC.parameters_and_loss()
    closed = logistic_hessian(parameters[0].detach())
    torch.testing.assert_close(hessian(loss(), parameters), closed, rtol=1e-12, atol=1e-14)


def test_a_power_of_two_scale_changes_no_bit(case):
    parameters, loss = case.parameters_and_loss()
    vectors = draw("rademacher", parameters)
    plain = LossHessian(loss(), parameters)(vectors)
    scaled = LossHessian(loss(), parameters, scale=2.0**15)(vectors)
    torch.testing.assert_close(scaled, plain, rtol=0, atol=0)


def test_wanted_rows_are_rows_of_the_whole():
    parameters, loss = NETWORK.parameters_and_loss()
    vectors = draw("rademacher", parameters)
    whole = loss_product(loss(), parameters, vectors)
    some = LossHessian(loss(), parameters)(vectors, wanted=[2, 0])
    torch.testing.assert_close(some, [whole[2], whole[0]], rtol=0, atol=0)


def test_the_loss_stays_usable_and_the_vectors_unharmed():
    w = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    loss = (w**2).sum() / 2
    vector = torch.tensor([3.0, -1.0], dtype=torch.float64)
    product = LossHessian(loss, [w], scale=4.0)([vector])[0]
    loss.backward()
    assert w.grad is not None
    torch.testing.assert_close(product, torch.tensor([3.0, -1.0], dtype=torch.float64))
    assert vector.tolist() == [3.0, -1.0]


def test_linear_and_absent_parameters_have_zero_rows():
    linear, absent, curved = (torch.ones(2, requires_grad=True) for _ in range(3))
    operator = LossHessian(linear.sum() + (curved**2).sum(), [linear, absent, curved])
    products = operator([torch.ones(2)] * 3)
    assert operator.present == [True, False, True]
    assert [p.tolist() for p in products] == [[0, 0], [0, 0], [2, 2]]


BAD_LOSSES = {
    "not a scalar": (lambda w: w**2, ValueError, r"\(2,\).*loss\.mean\(\)"),
    "a float": (lambda w: 1.0, TypeError, "tensor, got float"),
    "complex": (lambda w: (w**2).sum() * 1j, ValueError, r"\.real"),
    "detached": (lambda w: (w**2).sum().detach(), ValueError, r"loss\.detach\(\)"),
}


@pytest.mark.parametrize("name", BAD_LOSSES)
def test_a_loss_that_is_not_live_and_scalar_is_refused(name):
    make, error, words = BAD_LOSSES[name]
    weight = torch.ones(2, requires_grad=True)
    with pytest.raises(error, match=words):
        LossHessian(make(weight), [weight])


def _estimated(loss, parameters):
    return estimate_equilibration(lambda v: v, parameters, probes=2)


@pytest.mark.parametrize("entry", [LossHessian, hessian, _estimated])
def test_parameters_that_are_a_model_or_used_up_are_refused(entry):
    model = nn.Linear(2, 1)
    once = model.parameters()
    list(once)
    with pytest.raises(ValueError, match="make a list of it once"):
        entry(model(torch.ones(2)).square().sum(), once)
    with pytest.raises(TypeError, match=r"not the model: model\.parameters\(\)"):
        entry(model(torch.ones(2)).square().sum(), model)


def test_a_dense_hessian_takes_a_generator():
    model = nn.Linear(2, 1, bias=False)
    found = hessian(model(torch.ones(2)).square().sum(), model.parameters())
    assert found.tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_vector_too_many_or_too_few_is_refused(count):
    first, second = (torch.ones(2, requires_grad=True) for _ in range(2))
    operator = LossHessian((first * second).sum(), [first, second])
    with pytest.raises(ValueError, match=f"each of the 2 parameters, got {count}"):
        operator([torch.ones(2)] * count)


@pytest.mark.parametrize("step", [0.0, -1e-3, math.inf, math.nan])
def test_a_difference_step_that_is_not_positive_and_finite_is_refused(step):
    with pytest.raises(ValueError, match=r"Invalid step.*None"):
        difference_product(lambda p: p, [torch.ones(2)], [torch.ones(2)], step=step)


class _HandsOnItsWeight(torch.autograd.Function):
    """Its derivative is the weight itself, which is a leaf that trains."""

    @staticmethod
    def forward(ctx, weight):
        ctx.save_for_backward(weight)
        return weight**2 / 2

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0]


class _HandsItOnTwice(_HandsOnItsWeight):
    """And so is its second derivative."""

    @staticmethod
    def backward(ctx, gradient):
        return _HandsOnItsWeight.apply(ctx.saved_tensors[0])


def test_neither_products_nor_gradients_keep_a_graph():
    weight = torch.ones(2, requires_grad=True)
    found = LossHessian(_HandsItOnTwice.apply(weight).sum(), [weight])
    products = found([torch.ones(2)])
    assert not any(t.requires_grad for t in [*products, *found.gradients])
    assert found.live[0].requires_grad
