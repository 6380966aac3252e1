"""math_attention with a monitor: no record lost, and the fast kernel in all other passes."""

import warnings
from itertools import pairwise

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from equilibrate import ESGD, JacobiSGD, math_attention
from equilibrate.curvature.graph import nodes
from equilibrate.monitor import Monitor
from equilibrate.monitor.probe_ways import PROBE, SHARED, Ways
from equilibrate.monitor.schedule import Schedule
from tests.optim.test_attention import Attention

STEPS = range(13)
# An optimizer, and the steps in which it probes.
OPTIMIZERS = {
    "esgd": (lambda p: ESGD(p, lr=0.01, probe_every=4), STEPS[::4]),
    "jacobi": (lambda p: JacobiSGD(p, lr=0.01, probe_every=5), STEPS[::5]),
    "adam": (lambda p: torch.optim.Adam(p, lr=0.01), ()),
}


@pytest.mark.parametrize("every", [1, 3, 4, 20])
@pytest.mark.parametrize(("make", "probed"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_every_record_is_measured_and_other_passes_keep_the_fast_kernel(make, probed, every):
    torch.manual_seed(0)
    model, x, seen, fused = Attention(), torch.randn(4, 6, 8), [], []
    optimizer = make(model.parameters())
    monitor = Monitor(model, optimizer, seen.append, every=every, budget=None)
    asked = [optimizer, monitor] if probed else [monitor]
    for step in STEPS:
        with math_attention(*asked):
            loss = (model(x) - x.roll(1, 1)).square().mean()
        if any("ScaledDotProduct" in node.name() for node in nodes(loss)):
            fused.append(step)
        if probed:
            optimizer.probe(loss)
        monitor(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert ["sharpness" in record for record in seen] == [True] * len(STEPS[::every])
    assert fused == [step for step in STEPS if step not in {*probed, *STEPS[::every]}]


@pytest.mark.parametrize("way", [PROBE, SHARED])
@pytest.mark.parametrize("under", [None, checkpoint])
def test_compare_probes_times_the_fast_kernel_where_it_can_be_probed(way, under):
    model, x, fused = Attention(), torch.randn(4, 6, 8), []

    def loss():
        inner = model(x) if under is None else under(model, x, use_reentrant=False)
        fused.append(torch.backends.cuda.flash_sdp_enabled())
        return (inner - x).square().mean()

    ways = Ways(list(model.parameters()), loss, seed=0)
    assert ways.fails_outside(way) == (under is not None)
    ways.begin(way)
    ways.run(way)
    assert fused[-1] == (under is None)


def test_who_measures_must_be_named():
    with pytest.raises(TypeError, match=r"math_attention\(optimizer, monitor\)"), math_attention():
        pass


def test_one_that_never_measures_is_refused_though_another_is_due():
    weight = torch.ones(2, requires_grad=True)
    other = torch.optim.AdamW([weight])
    monitor = Monitor([("w", weight)], other, print)
    with (
        pytest.raises(TypeError, match=r"AdamW never probes.*math_attention\(monitor\)"),
        math_attention(monitor, other),
    ):
        pass


def _times(schedule, now, asks, calls=400):
    """The calls that are measured; every answer is checked against what the call does."""
    measured = []
    for call in range(calls):
        answers = [schedule.next_is_due() for _ in range(asks)]
        now[0] += 0.3  # a forward pass between question and call
        due = schedule.due()
        assert answers == [due] * asks
        if due:
            measured.append(call)
            schedule.spend(0.5)
        now[0] += 0.2
    return measured


@pytest.mark.parametrize("budget", [None, 0.02, 0.3])
@pytest.mark.parametrize("every", [1, 7])
def test_the_answer_holds_and_asking_shifts_no_measurement_by_more_than_a_call(every, budget):
    found = []
    for asks in (0, 1, 3):
        now = [0.0]
        found.append(_times(Schedule(every, budget, lambda now=now: now[0]), now, asks))
    alone, once, thrice = found
    assert once == thrice
    assert len(once) > 3
    assert len(alone) == len(once)
    # Judged 0.3 of a call's 0.5 seconds before: at most a call later, also after many.
    assert all(0 <= after - before <= 1 for before, after in zip(alone, once, strict=True))
    assert all(after - before >= every for before, after in pairwise(once))


def test_a_rank_that_does_not_measure_is_never_due(monkeypatch):
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    first, second = (Monitor([("w", weight)], optimizer, print, rank=r) for r in (0, 1))
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    assert (first.due, second.due) == (False, True)


def test_asking_leaves_the_warning_of_the_budget_to_the_call():
    weight, now = torch.ones(2, requires_grad=True), [0.0]
    optimizer, clock = torch.optim.SGD([weight]), lambda: now.__setitem__(0, now[0] + 1) or now[0]
    monitor = Monitor([("w", weight)], optimizer, lambda r: None, every=1, budget=0.01, clock=clock)
    monitor((weight**2).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not monitor.due
    with pytest.warns(UserWarning, match="budget"):
        monitor((weight**2).sum())
