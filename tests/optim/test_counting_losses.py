"""Which losses a step has: D of a warm-up is that of all its micro-batches, and of no others."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from tests.cases import NETWORK
from tests.optim.loops import train

KINDS = [(ESGD, "row"), (ESGD, "row-column"), (JacobiSGD, None)]


def made(kind, scaling, parameters):
    return kind(parameters, lr=0.0, **({} if scaling is None else {"scaling": scaling}))


def refused(optimizer, loss):
    """Losses that probe does not take."""
    for wrong in (loss.detach(), torch.stack([loss, loss]), 3.0):
        with pytest.raises((ValueError, TypeError)):
            optimizer.probe(wrong)


@pytest.mark.parametrize(("kind", "scaling"), KINDS)
def test_a_refused_loss_is_none_of_the_steps(kind, scaling):
    found = []
    for disturbed in (False, True):
        parameters, loss = NETWORK.parameters_and_loss()
        optimizer = made(kind, scaling, parameters)
        if disturbed:
            refused(optimizer, loss())
        train(optimizer, loss, 1)
        found.append(optimizer.diagonal())
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def test_a_loss_whose_second_derivative_fails_is_none_of_the_steps():
    class Opaque(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, gradient):
            return gradient

    parameters, loss = NETWORK.parameters_and_loss()
    straight, optimizer = (ESGD(parameters, lr=0.0) for _ in range(2))
    train(straight, loss, 1)
    with pytest.raises(RuntimeError):
        optimizer.probe(Opaque.apply(loss()))
    train(optimizer, loss, 1)
    torch.testing.assert_close(optimizer.diagonal(), straight.diagonal(), rtol=0, atol=0)


def join(optimizer, weight, loss):
    """Add a parameter and make one step of two micro-batches, each of them half of the loss."""
    optimizer.add_param_group({"params": [weight]})
    for _ in range(2):
        value = (loss() + weight.pow(4).sum()) / 2
        optimizer.probe(value)
        value.backward()
    optimizer.step()
    return optimizer.diagonal()[-1]


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("given_up", [1, 3])
@pytest.mark.parametrize(("kind", "scaling"), KINDS)
def test_iterations_given_up_are_none_of_the_next_step(kind, scaling, given_up, set_to_none):
    """Not even those in which no probe was due: a parameter that joins later is not misled."""
    found = []
    for iterations in (0, given_up):
        parameters, loss = NETWORK.parameters_and_loss()
        optimizer = made(kind, scaling, parameters)
        train(optimizer, loss, 1)
        optimizer.zero_grad(set_to_none)
        for _ in range(iterations):
            value = loss()
            assert not optimizer.probe(value)
            value.backward()
            optimizer.zero_grad(set_to_none)
        weight = torch.tensor([0.5, 2.0], dtype=parameters[0].dtype, requires_grad=True)
        found.append(join(optimizer, weight, loss))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


@pytest.mark.parametrize(("kind", "scaling"), KINDS)
def test_zeroing_between_probe_and_backward_takes_no_loss_from_the_step(kind, scaling):
    """The order of some trainers, with a parameter that the second micro-batch is first to meet."""
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = made(kind, scaling, parameters)
    train(optimizer, loss, 1)
    loss().backward()
    optimizer.step()  # its gradients are still there
    weight = torch.tensor([0.5, 2.0], dtype=parameters[0].dtype, requires_grad=True)
    optimizer.add_param_group({"params": [weight], "damping": 0.0})
    first = loss() / 2
    optimizer.probe(first)
    optimizer.zero_grad()
    first.backward()
    second = (loss() + weight.pow(4).sum()) / 2
    optimizer.probe(second)
    second.backward()
    optimizer.step()
    # Its Hessian is diagonal, so that every vector measures it exactly; half of it is in the step.
    torch.testing.assert_close(optimizer.diagonal()[-1], 6 * weight.detach() ** 2)


@pytest.mark.parametrize("scaling", ["row", "row-column"])
def test_what_was_calibrated_is_not_the_warm_up_of_a_first_micro_batch(scaling):
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = ESGD(parameters, lr=0.0, scaling=scaling)
    optimizer.calibrate(loss() for _ in range(20))
    before = optimizer.diagonal()
    for _ in range(4):
        value = loss() / 4
        assert not optimizer.probe(value)
        value.backward()
    optimizer.step()
    torch.testing.assert_close(optimizer.diagonal(), before, rtol=0, atol=0)


@pytest.mark.parametrize("fused", [False, True])
def test_a_parameter_counts_the_losses_that_reach_it(fused):
    """The curvature of a sum, where every term depends on other parameters."""
    found = []
    for apart in (True, False):
        first, second = (nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
        optimizer = ESGD([first, second], lr=1e-9, fused=fused)
        losses = [(first**4).sum(), *((second**4).sum() for _ in range(3))]
        for loss in losses if apart else [sum(losses)]:
            optimizer.probe(loss, backward=True)
        optimizer.step()
        found.append(optimizer.diagonal())
    torch.testing.assert_close(*found)
