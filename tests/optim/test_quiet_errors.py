"""What would go wrong without a word: each was seen to, once."""

import copy
import warnings

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD, LossHessian, estimate_equilibration
from tests.cases import DOUBLE, NETWORK
from tests.optim.loops import train, train_accumulated, train_by_closure


@pytest.mark.parametrize("divided", [True, False])
def test_the_warm_up_of_the_first_micro_batch_stands_for_all(divided):
    """n losses add up to n times the first, so does their curvature; with equal ones exactly."""
    norms = []
    for n in (1, 2, 8):
        parameters, loss = NETWORK.parameters_and_loss()
        optimizer = ESGD(parameters, lr=0.0, warmup_probes=10)
        factor = 1 / n if divided else 1.0
        train_accumulated(optimizer, [lambda f=factor, loss=loss: f * loss()] * n, 1)
        scale = 1.0 if divided else float(n)
        norms.append([d / scale for d in optimizer.diagonal()])
    torch.testing.assert_close(norms[1], norms[0])
    torch.testing.assert_close(norms[2], norms[0])


@pytest.mark.parametrize("warmup", [1, 20])
def test_what_is_probed_counts_once_for_each_call(warmup):
    """Of two equal micro-batches one leaves half of D, and one loss probed twice doubles it."""

    def diagonal(probed: int) -> list[torch.Tensor]:
        parameters, loss = NETWORK.parameters_and_loss()
        optimizer = ESGD(parameters, lr=0.0, warmup_probes=warmup)
        value = loss()
        for _ in range(probed):
            optimizer.probe(value)
        value.backward()
        optimizer.step()
        return optimizer.diagonal()

    torch.testing.assert_close(diagonal(2), [2 * d for d in diagonal(1)])


@pytest.mark.parametrize(("kind", "calls"), [(ESGD, [46, 1, 3]), (JacobiSGD, [206, 1, 3])])
def test_how_often_a_closure_runs_as_shipped(kind, calls):
    """First, between probes, and on a later probe (docs/loops.md)."""
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer, counts = kind(parameters), []

    def closure():
        counts[-1] += 1
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(21):
        counts.append(0)
        optimizer.step(closure)
    assert [counts[0], counts[1], counts[20]] == calls
    assert counts[1:20] == [1] * 19


def test_an_iteration_given_up_after_its_warm_up_counts_for_itself():
    parameters, loss = NETWORK.parameters_and_loss()
    straight = ESGD(parameters, lr=0.0, warmup_probes=10)
    train(straight, loss, 1)
    optimizer = ESGD(parameters, lr=0.0, warmup_probes=10)
    value = loss()
    optimizer.probe(value)
    value.backward()
    optimizer.zero_grad()  # given up
    train(optimizer, loss, 1)
    torch.testing.assert_close(optimizer.diagonal(), straight.diagonal(), rtol=0, atol=0)


def test_gradients_written_into_one_buffer_are_still_two_gradients():
    weight = torch.tensor([1.0, 2.0], dtype=DOUBLE, requires_grad=True)
    buffer = torch.zeros_like(weight)
    optimizer = ESGD([weight], lr=0.0, warmup_probes=1)

    def closure():
        loss = (weight**4).sum()
        buffer.copy_(torch.autograd.grad(loss, weight)[0])
        weight.grad = buffer
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(optimizer.diagonal()[0], torch.tensor([12.0, 48.0], dtype=DOUBLE))


def test_a_float16_product_that_overflows_is_measured_at_a_smaller_scale_every_time():
    weight = torch.tensor([0.5, 0.25], requires_grad=True)
    optimizer = ESGD([weight], lr=0.0, warmup_probes=20)
    train(optimizer, lambda: 0.6 * (weight.half().sum().float()) ** 2 * 1.0, 1)
    assert optimizer.param_groups[0]["dropped_probes"] == 0
    exact = ESGD([weight], lr=0.0, warmup_probes=20)
    train(exact, lambda: 0.6 * weight.sum() ** 2, 1)
    torch.testing.assert_close(optimizer.diagonal(), exact.diagonal(), rtol=2e-3, atol=0)


@pytest.mark.parametrize("hook", [lambda g: g.clamp(-1, 1), lambda g: 0.5 * g])
def test_hooks_on_parameters_are_for_gradients_alone(hook):
    weight = torch.ones(3, requires_grad=True)
    seen = []
    weight.register_hook(lambda g: seen.append(1))
    weight.register_hook(hook)
    optimizer = ESGD([weight], lr=0.0)
    loss = 5 * weight.square().sum()
    optimizer.probe(loss)
    assert not seen
    loss.backward()
    assert seen
    torch.testing.assert_close(weight.grad, hook(torch.full((3,), 10.0)))
    optimizer.step()
    torch.testing.assert_close(optimizer.diagonal()[0], torch.full((3,), 10.0))


@pytest.mark.parametrize("curvature", [0.0, 1e-8])
def test_a_tensor_that_shows_only_rounding_moves_as_the_others_do(curvature):
    flat = torch.tensor([1.0], requires_grad=True)
    other = torch.ones(50, requires_grad=True)
    optimizer = ESGD([flat, other], lr=0.02, damping=0.01)
    train(
        optimizer,
        lambda: 7 * flat.sum() + curvature * flat.square().sum() + other.square().sum(),
        1,
    )
    mean = 2.0 if curvature == 0 else 100 / 51  # over all elements that were seen
    assert float(1 - flat.detach()) == pytest.approx(0.02 * 7 / (mean * 1.01), rel=1e-4)


def test_a_loss_without_any_curvature_says_that_nothing_moves():
    weight = torch.ones(3, requires_grad=True)
    optimizer = ESGD([weight])
    loss = (weight * torch.arange(3.0)).sum() + 0 * weight.square().sum()
    optimizer.probe(loss)
    loss.backward()
    with pytest.warns(UserWarning, match="damping_kind"):
        optimizer.step()
    assert weight.tolist() == [1.0, 1.0, 1.0]


def test_the_state_of_another_optimizer_is_refused():
    weight = torch.ones(2, requires_grad=True)
    others = [JacobiSGD([weight]), torch.optim.Adam([weight]), torch.optim.RMSprop([weight])]
    for other in others:
        loss = weight.pow(4).sum()
        if isinstance(other, JacobiSGD):
            other.probe(loss)
        loss.backward()
        other.step()
        optimizer = ESGD([weight])
        with pytest.raises(ValueError, match=r"jacobi.*equilibration|does not measure curvature"):
            optimizer.load_state_dict(other.state_dict())
        assert not optimizer.state


@pytest.mark.parametrize("other", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
def test_the_state_of_another_optimizer_that_has_not_stepped_is_refused(kind, other):
    weight = torch.ones(2, requires_grad=True)
    optimizer = kind([weight])
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match="does not measure curvature"):
        optimizer.load_state_dict(other([weight]).state_dict())
    assert optimizer.state_dict() == before


def test_loaded_groups_are_checked():
    optimizer = ESGD([torch.ones(2, requires_grad=True)])
    saved = optimizer.state_dict()
    saved["param_groups"][0]["decay"] = 1.5
    with pytest.raises(ValueError, match=r"decay: 1\.5"):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["decay"] != 1.5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_estimates_in_half_precision_are_summed_in_single(dtype):
    weight = torch.rand(200).to(dtype).requires_grad_()
    operator = LossHessian((weight.float() ** 2 * 2).sum(), [weight])
    found = estimate_equilibration(operator, [weight], probes=1000, distribution="gaussian")
    off = (found.value[0] - 4).square().mean().sqrt()
    assert off < 3 * found.standard_error[0].mean()
    assert found.standard_error[0].mean() == pytest.approx(4 * 0.71 / 1000**0.5, rel=0.1)


def test_a_coarser_dtype_that_joins_gets_its_own_step():
    fine = torch.tensor([1.0, 2.0], requires_grad=True)
    coarse = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    optimizer = ESGD([fine], lr=0.0, warmup_probes=2)
    train_by_closure(optimizer, lambda: (fine**4).sum(), 1)
    step = optimizer.param_groups[0]["difference_step"]
    optimizer.add_param_group({"params": [coarse]})
    train_by_closure(optimizer, lambda: (fine**4).sum() + (coarse.float() ** 4).sum(), 1)
    assert optimizer.param_groups[0]["difference_step"] > 10 * step


def test_a_copy_stays_independent_of_the_ranks():
    optimizer = ESGD([torch.ones(2, requires_grad=True)], process_group=False)
    assert copy.deepcopy(optimizer)._process_group is False


def test_warnings_point_at_the_users_line():
    model = nn.Linear(2, 1)
    optimizer = ESGD(model.parameters(), probe_every=1)
    train(optimizer, lambda: model(torch.ones(3, 2)).square().sum(), 1)
    model(torch.ones(3, 2)).sum().backward()
    with pytest.warns(UserWarning, match="A probe is due") as caught:
        optimizer.step()
    assert caught[0].filename == __file__


def _forgetful(optimizer, loss, way):
    """A step whose loss is not backpropagated."""
    if way == "closure":
        optimizer.step(loss)
    else:
        optimizer.probe(loss())
        optimizer.step()


@pytest.mark.parametrize("way", ["probe", "closure"])
def test_a_forgotten_backward_is_told_of_once(way):
    model, x = nn.Linear(3, 1), torch.randn(10, 3)
    optimizer = ESGD(model.parameters())

    def loss():
        return model(x).square().mean()

    with pytest.warns(UserWarning, match=r"Call loss.backward\(\)"):
        _forgetful(optimizer, loss, way)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _forgetful(optimizer, loss, way)


def test_a_closure_that_leaves_a_backward_out_on_a_due_step_goes_on():
    """A guard against a loss that is not a number, say; that probe is left out."""
    model, x = nn.Linear(3, 1), torch.randn(10, 3)
    optimizer = ESGD(model.parameters(), probe_every=2)
    skipped = False

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if not skipped:
            loss.backward()
        return loss

    for step in range(6):
        skipped = step == 2
        if skipped:
            before = [p.clone() for p in model.parameters()]
            with pytest.warns(UserWarning, match="No parameter has a gradient"):
                optimizer.step(closure)
            assert all(map(torch.equal, before, model.parameters()))
        else:
            optimizer.step(closure)
    assert optimizer.state[model.weight]["probes"] == 20 + 1  # the fifth step's


@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
@pytest.mark.parametrize("what", ["model", "method"])
def test_a_model_in_the_place_of_its_parameters(kind, what):
    model = nn.Linear(3, 1)
    with pytest.raises(TypeError, match=r"model.parameters\(\)"):
        kind(model if what == "model" else model.parameters)
