"""What cannot be compared is refused with what to do, and leaves nothing behind."""

import copy
import math
import random
import re

import pytest
import torch
from torch import nn

from equilibrate.monitor import compare_probes
from tests.monitor.test_compare_probes import Once, subject

X = torch.linspace(-1, 1, 12).view(4, 3)


def network(*last):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), *(last or (nn.Tanh(),)), nn.Linear(5, 2))


def _loss(model):
    return model(X).square().mean()


def _under_no_grad(model):
    with torch.no_grad():
        return _loss(model)


def _used(model):
    loss = _loss(model)
    loss.backward()
    return loss


# What the loss gives, the error, and what it says.
LOSSES = {
    "a float": (lambda m: float(_loss(m).detach()), TypeError, "not loss.item()"),
    "a vector": (lambda m: m(X).square().mean(1), ValueError, "loss.mean()"),
    "detached": (lambda m: _loss(m).detach(), ValueError, "outside torch.no_grad()"),
    "under no_grad": (_under_no_grad, ValueError, "outside torch.no_grad()"),
    "not finite": (lambda m: _loss(m) * math.inf, ValueError, "Check the batch"),
    "of another model": (lambda m: _loss(copy.deepcopy(m)), ValueError, "does not depend"),
    "backpropagated": (lambda m: _used(m), ValueError, "Leave out loss.backward()"),
}


@pytest.mark.parametrize(("loss", "error", "says"), LOSSES.values(), ids=LOSSES.keys())
def test_the_first_loss_is_checked(loss, error, says):
    model = network()
    with pytest.raises(error, match=re.escape(says)):
        compare_probes(model, lambda: loss(model))
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("rounds", [0, -1, 2.5, "3", None])
def test_rounds_are_a_whole_number(rounds):
    with pytest.raises(ValueError, match=re.escape(f"Invalid rounds: {rounds!r}. It must be")):
        compare_probes(*subject("tanh"), rounds=rounds)


def test_a_loss_in_the_place_of_a_function_is_refused():
    model = network()
    with pytest.raises(TypeError, match="lambda: criterion"):
        compare_probes(model, _loss(model))


def test_parameters_in_the_place_of_the_model_are_refused():
    model = network()
    with pytest.raises(TypeError, match=r"got generator\. Pass the model itself"):
        compare_probes(model.parameters(), lambda: _loss(model))


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ValueError, match=re.escape("requires_grad_()")):
        compare_probes(network().requires_grad_(False), lambda: torch.zeros(()))


def test_it_works_where_gradients_are_switched_off():
    model = network()
    with torch.no_grad():
        found = compare_probes(model, lambda: _loss(model), rounds=1)
        assert not torch.is_grad_enabled()
    assert all(way.is_right for way in found.ways)


class Noise(nn.Module):
    """Dropout by a generator that is not torch's."""

    def __init__(self):
        super().__init__()
        self.generator = random.Random(0)

    def forward(self, x):
        kept = [float(self.generator.random() < 0.5) for _ in range(x.shape[-1])]
        return torch.tensor(kept) * x if self.training else x


class Drifts(nn.Module):
    """A forward pass that changes what the next one computes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        if self.training:
            self.scale.mul_(1.3)
        return (x * self.scale.clone()).tanh()


CHANGING = {
    "noise": lambda: network(nn.Tanh(), Noise()),
    "noise, differentiated once": lambda: network(Once(), Noise()),
    "its own state": lambda: network(Drifts()),
}


@pytest.mark.parametrize("make", CHANGING.values(), ids=CHANGING.keys())
def test_a_loss_that_differs_at_each_call_is_refused_until_eval(make):
    model = make()
    with pytest.raises(ValueError, match="Return the loss of one fixed batch") as error:
        compare_probes(model, lambda: _loss(model), rounds=1)
    assert "Dropout" in str(error.value)
    assert "model.eval()" in str(error.value)
    model.eval()
    assert compare_probes(model, lambda: _loss(model), rounds=1).cheapest


def test_new_data_at_each_call_are_refused():
    model = network()
    batches = iter(torch.randn(50, 4, 3, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(ValueError, match="draw the batch outside"):
        compare_probes(model, lambda: model(next(batches)).square().mean(), rounds=1)


@pytest.mark.parametrize("before", [None, 2.0])
def test_gradients_of_other_tensors_are_put_back(before):
    model, scale = network(), torch.ones(2, requires_grad=True)
    scale.grad = gradient = None if before is None else torch.full((2,), before)
    compare_probes(model, lambda: (model(X) * scale).square().mean(), rounds=1)
    assert scale.grad is gradient
    assert before is None or torch.equal(gradient, torch.full((2,), before))


HOOKED = {
    "a parameter": (lambda model, scale: model[0].weight, "0.weight"),
    "another tensor": (lambda model, scale: scale, "no parameter, (2,)"),
}


@pytest.mark.parametrize(("choose", "name"), HOOKED.values(), ids=HOOKED.keys())
def test_hooks_after_accumulation_are_refused_by_name_and_never_run(choose, name):
    model, scale, seen = network(), torch.ones(2, requires_grad=True), []
    hook = choose(model, scale).register_post_accumulate_grad_hook(seen.append)
    with pytest.raises(ValueError, match=re.escape(f": {name}. Remove them")):
        compare_probes(model, lambda: (model(X) * scale).square().mean(), rounds=1)
    assert seen == []
    hook.remove()
    compare_probes(model, lambda: (model(X) * scale).square().mean(), rounds=1)
