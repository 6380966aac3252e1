"""Whole iterations, probing ones included, replayed as CUDA graphs: docs/speed.md's recipe."""

import gc

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from equilibrate.kernels import capture

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]
EVERY = 4


class Training:
    """A small network whose batch is written into one place."""

    def __init__(self, kind, **options):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(10, 70), nn.Tanh(), nn.Linear(70, 3)).cuda()
        self.batch = torch.zeros(32, 10, device="cuda")
        self.lr = torch.tensor(0.01, device="cuda")
        options = {"lr": self.lr, "probe_every": EVERY, "warmup_probes": 5} | options
        self.optimizer = kind(self.model.parameters(), **options)
        self.count = 0

    def iterate(self, joined=True):
        loss = (self.model(self.batch) - self.batch[:, :3].sin()).square().mean()
        if joined:
            self.optimizer.probe(loss, backward=True)
        else:
            self.optimizer.probe(loss)
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def load(self):
        """Write the next batch, and a learning rate of its own."""
        generator = torch.Generator().manual_seed(self.count)
        self.batch.copy_(torch.randn(32, 10, generator=generator))
        self.lr.fill_(0.01 / (1 + self.count))
        self.count += 1

    def capture(self, **how):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.iterate(**how)
        return graph


def _settled(*trainings, joined=True):
    """Make the ordinary iterations that come before a capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2 * EVERY):
            for training in trainings:
                training.load()
                training.iterate(joined)
    torch.cuda.current_stream().wait_stream(stream)


def _compare(eager, probing, ordinary, replayed, joined=True):
    """Go on with both, one by replays, and compare the parameters."""
    for i in range(3 * EVERY):
        for training in (eager, replayed):
            training.load()
        eager.iterate(joined)
        (ordinary if i % EVERY else probing).replay()
    ends = [[p.detach() for p in t.model.parameters()] for t in (eager, replayed)]
    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_replays_equal_eager_iterations(kind, fused, joined, momentum):
    options = {"fused": fused, "capturable": True, "momentum": momentum}
    options["mean_floor"] = bool(momentum)
    eager, replayed = Training(kind, **options), Training(kind, **options)
    _settled(eager, replayed, joined=joined)
    assert replayed.optimizer.probe_due
    probing, ordinary = replayed.capture(joined=joined), replayed.capture(joined=joined)
    _compare(eager, probing, ordinary, replayed, joined)
    numbers = [
        t.optimizer.state[p] for t in (eager, replayed) for p in [next(t.model.parameters())]
    ]
    assert int(numbers[0]["probes"]) == int(numbers[1]["probes"]) == 5 + 1 + 3
    assert float(numbers[0]["step"]) == float(numbers[1]["step"]) == 5 * EVERY
    torch.testing.assert_close(numbers[0]["diagonal"], numbers[1]["diagonal"], rtol=1e-4, atol=1e-8)


def _forget():
    """Forget all that is remembered between steps, and write over the memory it had."""
    from equilibrate.kernels import blocks, signs

    capture._number._made.clear()
    blocks._table._made.clear()
    blocks._plan.cache_clear()
    signs._layout.cache_clear()
    gc.collect()
    return [torch.full((n,), -1, dtype=torch.int64, device="cuda") for n in [1, 64, 256] * 50]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_graph_outlives_what_is_remembered(momentum):
    options = {"fused": True, "capturable": True, "momentum": momentum, "lr": 0.01}
    eager, replayed = Training(ESGD, **options), Training(ESGD, **options)
    _settled(eager, replayed)
    probing, ordinary = replayed.capture(), replayed.capture()
    written_over = _forget()
    _compare(eager, probing, ordinary, replayed)
    assert all(bool((t == -1).all()) for t in written_over)


def test_a_capture_that_was_not_announced_is_refused():
    training = Training(ESGD)
    for _ in range(2):
        training.load()
        training.iterate()
    with pytest.raises(RuntimeError, match="capturable=True"):
        training.capture()
    torch.cuda.synchronize()


def test_a_capture_before_any_step_is_refused():
    training = Training(ESGD, capturable=True, fused=True)
    training.load()
    with pytest.raises(RuntimeError):
        training.capture()
    torch.cuda.synchronize()
