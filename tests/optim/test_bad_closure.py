"""What a closure must not do, and what it may."""

from itertools import count

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from equilibrate import ESGD
from tests.optim.bad_input import BOTH, DOUBLE, TRAINED, X, always_due, loss_of, network
from tests.optim.loops import train_by_closure
from tests.optim.watching import same, unchanged


@BOTH
@TRAINED
def test_a_closure_that_accumulates_is_refused(kind, steps):
    model = network()
    optimizer = always_due(model, steps=steps, kind=kind, by_closure=True)
    optimizer.zero_grad()
    loss_of(model).backward()

    def accumulating() -> Tensor:
        loss = functional.smooth_l1_loss(functional.dropout(model(X)), X[:, :1])
        loss.backward()
        return loss

    words = r"optimizer\.probe\(loss\).*zero_grad\(\)"
    with unchanged(optimizer), pytest.raises(RuntimeError, match=words):
        optimizer.step(accumulating)
    assert not optimizer.measuring


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize("size", [8, 512])
def test_a_closure_that_draws_a_new_batch_each_time_is_refused(kind, size, dtype):
    model = network().to(dtype)
    optimizer = kind(model.parameters(), lr=0.01)
    draws = count()

    def closure() -> Tensor:
        generator = torch.Generator().manual_seed(next(draws))  # as a loader with its own
        x = torch.randn(size, 3, dtype=dtype, generator=generator)
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss

    with unchanged(optimizer), pytest.raises(RuntimeError, match="the batch outside the closure"):
        optimizer.step(closure)
    assert not optimizer.measuring


def test_a_closure_with_torchs_own_randomness_is_welcome():
    model = network()
    optimizer = ESGD(model.parameters(), lr=0.01, warmup_probes=3)

    def noisy() -> Tensor:
        x = torch.randn(8, 3, dtype=DOUBLE)
        return (model(functional.dropout(x)) - x.sum(1, keepdim=True)).square().mean()

    torch.manual_seed(0)
    noisy()
    after_one_pass = torch.get_rng_state()
    torch.manual_seed(0)
    train_by_closure(optimizer, noisy, 1)
    assert same(torch.get_rng_state(), after_one_pass)


@TRAINED
@pytest.mark.parametrize("run", [2, 3])
def test_an_error_inside_the_closure_at_a_displaced_point_leaves_no_trace(run, steps):
    model = network()
    optimizer = always_due(model, steps=steps, by_closure=True)
    runs = count(1)

    def failing() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        torch.rand(1)
        if next(runs) == run:
            raise KeyError("the user's own")
        return loss

    (3 * loss_of(model)).backward()
    with unchanged(optimizer), pytest.raises(KeyError):
        optimizer.step(failing)
    assert not optimizer.measuring


def _parabola(value: float, earlier: float) -> tuple[Tensor, ESGD]:
    weight = torch.full((1,), value, dtype=DOUBLE, requires_grad=True)
    weight.grad = torch.full((1,), earlier, dtype=DOUBLE)
    return weight, ESGD([weight], lr=0.0, warmup_probes=1)


def test_a_clipped_gradient_that_an_earlier_one_explains_is_not_taken_for_accumulation():
    """Clipped from 2 to 1 after an overshoot: what is missing is just the last step's gradient."""
    weight, optimizer = _parabola(2.0, earlier=-1.0)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = weight.square().sum() / 2
        loss.backward()
        if not optimizer.measuring:
            torch.nn.utils.clip_grad_norm_([weight], 1.0)
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(
        optimizer.diagonal()[0], torch.ones(1, dtype=DOUBLE), rtol=1e-6, atol=0
    )


def test_accumulation_onto_an_opposite_gradient_is_refused():
    """The sum is minus twice the closure's own gradient: no clipping turns a gradient around."""
    weight, optimizer = _parabola(2.0, earlier=-6.0)

    def accumulating() -> Tensor:
        loss = weight.square().sum() / 2
        loss.backward()
        return loss

    with unchanged(optimizer), pytest.raises(RuntimeError, match=r"zero_grad\(\)"):
        optimizer.step(accumulating)


@pytest.mark.parametrize("kept", ["one buffer", "an expanded scalar"])
def test_gradients_that_the_closure_keeps_are_those_of_the_point_again(kept):
    """As a bucket of DDP, written in every pass; or one number for all elements."""
    weight = torch.full((3,), 2.0, requires_grad=True)
    optimizer = ESGD([weight], lr=0.0, warmup_probes=1)
    buffer = torch.zeros(3)

    def closure() -> Tensor:
        loss = weight.sum() ** 2 / 2
        (gradient,) = torch.autograd.grad(loss, weight)
        same = kept == "one buffer"
        weight.grad = buffer.copy_(gradient) if same else gradient[:1].expand(3)
        return loss

    optimizer.step(closure)
    assert weight.grad.tolist() == [6.0, 6.0, 6.0]


@pytest.mark.parametrize("zeroed", ["inside", "outside"])
@pytest.mark.parametrize("step", [0, 20])
def test_gradients_of_another_optimizers_parameters_are_those_of_one_run(zeroed, step):
    """The closure gives them a gradient at every displaced point as well."""
    body, head = torch.nn.Linear(3, 4, dtype=DOUBLE), torch.nn.Linear(4, 1, dtype=DOUBLE)
    optimizer = ESGD(body.parameters(), lr=0.01)
    other = torch.optim.SGD(head.parameters(), lr=0.01)

    def closure() -> Tensor:
        optimizer.zero_grad()
        if zeroed == "inside":
            other.zero_grad()
        loss = head(body(X).tanh()).square().mean()
        loss.backward()
        return loss

    for _ in range(step + 1):
        other.zero_grad()
        expected = torch.autograd.grad(head(body(X).tanh()).square().mean(), head.parameters())
        optimizer.step(closure)
        found = [p.grad for p in head.parameters()]
        torch.testing.assert_close(found, list(expected), rtol=0, atol=0)
        other.step()


def test_a_refused_closure_leaves_gradients_in_the_users_own_buffer():
    weight, buffer = torch.ones(4, requires_grad=True), torch.full((4,), 7.0)
    weight.grad = buffer.view(4)
    optimizer = ESGD([weight], lr=0.1)
    clips = [True]

    def closure() -> Tensor:
        buffer.zero_()
        loss = (weight**4).sum()
        loss.backward()
        if clips[-1]:
            torch.nn.utils.clip_grad_norm_([weight], 1e-3)
        return loss

    with pytest.raises(RuntimeError, match="clips"):
        optimizer.step(closure)
    assert weight.grad.data_ptr() == buffer.data_ptr()
    assert buffer.tolist() == [7.0] * 4
    clips.append(False)
    optimizer.step(closure)
    assert optimizer.state[weight]["probes"] == 20
