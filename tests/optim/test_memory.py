"""Three thousand steps with probes grow neither memory nor the autograd graph."""

import gc
import os
import sys
import tracemalloc
import weakref

import pytest
import torch

from equilibrate import ESGD
from tests.cases import SADDLE
from tests.optim.loops import train, train_by_closure

STEPS = 3000


def _held() -> tuple[int, int]:
    """Tensors and traced bytes; Python's cache of attributes keeps names, 4,096 at most."""
    gc.collect()
    tensors = sum(isinstance(o, torch.Tensor) for o in gc.get_objects())
    sys._clear_type_cache()
    return tensors, tracemalloc.get_traced_memory()[0]


def _grown(run) -> tuple[int, int]:
    """Tensors and Python bytes that 3,000 steps leave behind, after a first round to warm up."""
    tracemalloc.start()
    run(50)
    before, bytes_before = _held()
    run(STEPS)
    after, bytes_after = _held()
    tracemalloc.stop()
    return after - before, bytes_after - bytes_before


def test_probes_leave_nothing_behind():
    parameters, loss = SADDLE.parameters_and_loss()
    optimizer = ESGD(parameters, lr=1e-5, probe_every=3)
    tensors, size = _grown(lambda steps: train(optimizer, loss, steps) and None)
    assert tensors <= 0
    assert size < STEPS  # not a byte is kept for each step
    assert all(p.grad is None and p.is_leaf for p in parameters)


def test_closures_leave_nothing_behind():
    parameters, loss = SADDLE.parameters_and_loss()
    optimizer = ESGD(parameters, lr=1e-5, probe_every=3)
    run = lambda steps: train_by_closure(optimizer, loss, steps) and None  # noqa: E731
    tensors, size = _grown(run)
    assert tensors <= 0
    assert size < STEPS


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_graph_of_the_gradient_is_freed_at_once():
    """Its saved tensors hold 80 MB; without help from the garbage collector none of it stays."""
    weight = torch.rand(5_000_000, requires_grad=True)
    optimizer = ESGD([weight], warmup_probes=2)
    gc.disable()
    try:
        loss = (weight**4).sum()
        optimizer.calibrate([loss, loss])
        before = _resident()
        for _ in range(5):
            optimizer.calibrate([loss])
        assert _resident() - before < 100e6  # five graphs kept would be 400 MB
    finally:
        gc.enable()


class Held:
    """What autograd keeps for a backward pass, so that one can see when it is let go."""

    def __init__(self, tensor):
        self.tensor = tensor


def _calibrated(scaling: str, release: bool) -> tuple[ESGD, list[torch.Tensor], int]:
    """Calibrate on three losses; also return how much of what they saved is still there."""
    weight = torch.tensor([0.5, 2.0], requires_grad=True)
    optimizer, saved = ESGD([weight], scaling=scaling), []

    def pack(tensor):
        held = Held(tensor.detach())
        saved.append(weakref.ref(held))
        return held

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.tensor):
        losses = [weight.exp().square().sum() for _ in range(3)]
    assert optimizer.calibrate(losses, release=release) == 3
    return optimizer, losses, sum(held() is not None for held in saved)


@pytest.mark.parametrize("scaling", ["row", "row-column"])
def test_calibrating_frees_every_graph_where_that_is_asked_for(scaling):
    """The diagonal is the same; a loss whose graph was freed can be used no more."""
    keeping, losses, kept = _calibrated(scaling, release=False)
    freeing, used, left = _calibrated(scaling, release=True)
    torch.testing.assert_close(freeing.diagonal(), keeping.diagonal(), rtol=0, atol=0)
    assert left <= kept - len(losses)
    losses[0].backward()
    with pytest.raises(RuntimeError, match="second time"):
        used[0].backward()
    with pytest.raises(RuntimeError, match="already backpropagated"):
        freeing.calibrate(used, release=True)


@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("scaling", ["row", "row-column"])
def test_one_graph_is_alive_at_a_time_where_a_generator_is_calibrated_on(scaling, release):
    """When a loss is asked for, the one before it is gone, and so are its products."""
    weight = torch.tensor([0.5, 2.0], requires_grad=True)
    optimizer = ESGD([weight], scaling=scaling)
    alive, contributions = [], optimizer._contributions

    def watched(*arguments):
        found = contributions(*arguments)
        alive.extend(map(weakref.ref, found.values()))
        return found

    def losses():
        for _ in range(4):
            assert [held for held in alive if held() is not None] == []
            loss = weight.exp().square().sum()
            alive.append(weakref.ref(loss))
            yield loss
            del loss

    optimizer._contributions = watched
    gc.disable()
    try:
        assert optimizer.calibrate(losses(), release=release) == 4
    finally:
        gc.enable()
    assert len(alive) >= 8


@pytest.mark.parametrize("scaling", ["row", "row-column"])
def test_a_warm_up_keeps_no_product_while_the_next_one_is_made(scaling):
    weight = torch.tensor([0.5, 2.0], requires_grad=True)
    optimizer = ESGD([weight], scaling=scaling)
    alive, contributions = [], optimizer._contributions

    def watched(*arguments):
        assert [held for held in alive if held() is not None] == []
        found = contributions(*arguments)
        alive.extend(map(weakref.ref, found.values()))
        return found

    optimizer._contributions = watched
    gc.disable()
    try:
        optimizer.probe(weight.exp().square().sum(), backward=True)
    finally:
        gc.enable()
    assert len(alive) == 20


def _resident() -> float:
    """Bytes of memory in use by this process."""
    with open("/proc/self/statm") as file:
        return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
