"""Three thousand steps with probes grow neither memory nor the autograd graph."""

import gc
import os
import sys
import tracemalloc

import pytest
import torch

from equilibrate import ESGD
from tests.cases import SADDLE
from tests.optim.loops import train, train_by_closure

STEPS = 3000


def _tensors() -> int:
    gc.collect()
    return sum(isinstance(o, torch.Tensor) for o in gc.get_objects())


def _grown(run) -> tuple[int, int]:
    """Tensors and Python bytes that 3,000 steps leave behind, after a first round to warm up."""
    run(50)
    tracemalloc.start()
    before, bytes_before = _tensors(), tracemalloc.get_traced_memory()[0]
    run(STEPS)
    after, bytes_after = _tensors(), tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return after - before, bytes_after - bytes_before


def test_probes_leave_nothing_behind():
    parameters, loss = SADDLE.parameters_and_loss()
    optimizer = ESGD(parameters, lr=1e-5, probe_every=3)
    tensors, size = _grown(lambda steps: train(optimizer, loss, steps) and None)
    assert tensors <= 0
    assert size < 16 * STEPS  # no Python object is that small: none is kept for each step
    assert all(p.grad is None and p.is_leaf for p in parameters)


def test_closures_leave_nothing_behind():
    parameters, loss = SADDLE.parameters_and_loss()
    optimizer = ESGD(parameters, lr=1e-5, probe_every=3)
    run = lambda steps: train_by_closure(optimizer, loss, steps) and None  # noqa: E731
    tensors, size = _grown(run)
    assert tensors <= 0
    assert size < 16 * STEPS


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_graph_of_the_gradient_is_freed_at_once():
    """Its saved tensors hold 80 MB; without help from the garbage collector none of it stays."""
    weight = torch.rand(5_000_000, requires_grad=True)
    optimizer = ESGD([weight], warmup_probes=2)
    gc.disable()
    try:
        loss = (weight**4).sum()
        optimizer.probe(loss)
        optimizer.calibrate([loss, loss])
        before = _resident()
        for _ in range(5):
            optimizer.calibrate([loss])
        assert _resident() - before < 100e6  # five graphs kept would be 400 MB
    finally:
        gc.enable()


def _resident() -> float:
    """Bytes of memory in use by this process."""
    with open("/proc/self/statm") as file:
        return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
