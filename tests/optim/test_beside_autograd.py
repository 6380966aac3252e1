"""What kernels must see to that write into memory beside autograd; a law for every way to step."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from equilibrate import ESGD, JacobiSGD
from tests.optim.laws import assert_same
from tests.optim.loops import train
from tests.optim.ways import WAYS, over_ways, ways  # noqa: F401


@over_ways
@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_backward_that_needs_what_a_step_has_moved_raises(momentum, dtype, kind, way):
    """A kernel writes where autograd does not look: without a word the gradient would be wrong."""
    weights = [torch.ones(size, dtype=dtype, requires_grad=True) for size in (3, (2, 2))]
    optimizer = kind(weights, momentum=momentum, **WAYS[way])
    train(optimizer, lambda: sum(w.pow(3).sum() for w in weights), 3)
    old = sum(w.pow(2).sum() for w in weights)
    train(optimizer, lambda: sum(w.pow(3).sum() for w in weights), 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        old.backward()


over_sizes = pytest.mark.parametrize(
    "sizes", [(4, 100_000), (100_000, 4), ((2, 3), (3, 2))], ids=str
)


@over_ways
@over_sizes
def test_a_parameter_that_has_changed_its_shape_is_not_moved(sizes, way):
    """A kernel that goes by one size alone would read and write beyond the end of the other."""
    weight = torch.ones(sizes[0], requires_grad=True)
    optimizer = ESGD([weight], momentum=0.9, growth_limit=None, **WAYS[way])
    train(optimizer, lambda: weight.pow(4).sum(), 2)
    weight.data, weight.grad = torch.ones(sizes[1]), None
    with pytest.raises((RuntimeError, ValueError)):
        train(optimizer, lambda: weight.pow(4).sum(), 25)
    assert torch.equal(weight, torch.ones(sizes[1]))


@over_ways
@over_sizes
@pytest.mark.parametrize("kept", [0.0, 0.9], ids=["diagonal", "momentum_buffer"])
def test_a_state_of_another_shape_is_not_loaded(kept, sizes, way):
    saved, own = (torch.ones(size, requires_grad=True) for size in sizes)
    first, second = (ESGD([w], momentum=kept, **WAYS[way]) for w in (saved, own))
    train(first, lambda: saved.pow(4).sum(), 2)
    train(second, lambda: own.pow(4).sum(), 2)
    given, before = first.state_dict(), second.diagonal()
    if kept:
        given["state"][0]["diagonal"] = torch.ones(sizes[1])
    with pytest.raises(ValueError, match="is of another model"):
        second.load_state_dict(given)
    assert_same(second.diagonal(), before)


@over_ways
def test_another_default_device_changes_nothing(way):
    ends = []
    for device in ("cpu", "meta"):
        weight = torch.ones(5, requires_grad=True)
        optimizer = ESGD([weight], momentum=0.9, **WAYS[way])
        train(optimizer, lambda w=weight: w.pow(4).sum(), 1)
        with torch.device(device):
            weight.grad = weight.detach().clone()
            optimizer.step()
        ends.append(weight.detach())
    assert torch.equal(*ends)


@over_ways
def test_a_tensor_of_a_class_of_its_own_is_moved_as_a_plain_one(way):
    """Such a one may hold its elements elsewhere, and nothing at its own address."""
    plain = torch.ones(5, requires_grad=True)
    twice = torch.nn.Parameter(TwoTensor(torch.ones(5), torch.ones(5)))
    for weight in (plain, twice):
        optimizer = ESGD([weight], momentum=0.9, growth_limit=None, **WAYS[way])
        train(optimizer, lambda w=weight: w.pow(4).sum(), 3)
    torch.testing.assert_close(twice.detach().a, plain.detach(), rtol=0, atol=0)
