"""The speed benchmarks: tables are drawn from records alone, and parts run small on a CPU."""

import math
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks import (
    against,
    bare_probe,
    difference_error,
    host_cost,
    probe_cost,
    replay,
    second_derivatives,
    update_bandwidth,
)
from benchmarks.loops import EVERY, Differencing, Plain, Probing
from benchmarks.measure import peak, ratio, records
from benchmarks.models import MODELS, Problem
from benchmarks.rivals import RIVALS
from benchmarks.table import TABLES
from benchmarks.table import against as table
from equilibrate import ESGD
from equilibrate.rules import on_device

ROOT = Path(__file__).parent.parent
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """A network of two layers in the place of the models."""

    def build(device, small):
        model = torch.nn.Linear(4, 3).to(device)
        batch = torch.rand(8, 4, device=device)
        return Problem(model, lambda s: model(batch[: int(8 * s)]).tanh().square().mean())

    monkeypatch.setitem(MODELS, "sine field", build)


def test_the_tables_of_the_records_kept_are_those_on_the_page():
    page = (ROOT / "docs" / "speed.md").read_text()
    assert table(records(ROOT / "docs" / "speed-cpu.jsonl")) in page
    page = (ROOT / "docs" / "speed-gpu.md").read_text()
    found = records(ROOT / "docs" / "speed-gpu.jsonl")
    for draw in TABLES.values():
        assert draw(found) in page


def test_every_method_is_measured_or_says_why_not(tmp_path):
    path = tmp_path / "against.jsonl"
    ours = [r for r in RIVALS if "fused" not in r.name]
    against.measure("sine field", ours, CPU, True, 0.0, path)
    found = {r["method"]: r for r in records(path)}
    assert sorted(found) == sorted(r.name for r in ours)
    assert all(("times" in r) != ("error" in r) for r in found.values())
    assert found["SGD"]["state"] == 0
    assert found["ESGD"]["state"] == pytest.approx(4, abs=0.5)
    assert len(found["ESGD"]["times"]) == len(found["ESGD"]["base"])
    for name in found:
        assert f"| {name} |" in table(list(found.values()))


def test_the_most_memory_is_that_of_tensors_that_live_at_once():
    with peak(CPU) as peaked:
        first = torch.ones(1000)
        second = first + 1
        del first
        third = second.view(10, 100) * 2
        assert peaked() == 8000  # a view takes none, and two tensors of 4000 live at a time
        fourth = torch.cat([third.flatten(), second])
        assert peaked() == 16000
        del second, third, fourth
        torch.ones(1000)
        assert peaked() == 16000


def test_with_a_probe_a_run_takes_more_memory_and_says_so():
    """Its diagonal, and what a second derivative keeps; the rivals' states are larger."""
    most, by = {}, {rival.name: rival for rival in RIVALS}
    for name in ("SGD", "ESGD", "AdamW, foreach"):
        _, most[name], problem = against.start(by[name], MODELS["sine field"], CPU, True)
    assert most["SGD"] < most["AdamW, foreach"]
    assert most["SGD"] + 4 * problem.count() <= most["ESGD"]


def test_a_ratio_is_taken_round_by_round():
    assert ratio([2.0, 6.0, 12.0], [1.0, 2.0, 3.0]) == (3.0, 2.5, 3.5)


LOOPS = {
    "shared": Probing,
    "of a part": partial(Probing, share=0.5),
    "apart": partial(Probing, joined=False),
    "by closure": Differencing,
}


@pytest.mark.parametrize("made", LOOPS.values(), ids=LOOPS)
def test_a_block_holds_one_probe(made):
    problem = MODELS["sine field"](CPU, True)
    loop = made(problem, lambda p: ESGD(p, warmup_probes=1))
    for _ in range(3):
        loop.block()
    state = loop.optimizer.state[problem.parameters()[0]]
    assert state["probes"] == 3
    assert float(state["step"]) == 3 * EVERY


@pytest.mark.parametrize("closure", [False, True])
def test_the_cost_of_a_probe_is_recorded(tmp_path, monkeypatch, closure):
    way = probe_cost.Way("here", closure=closure)
    monkeypatch.setattr(probe_cost, "ESGD", lambda p, fused, **options: ESGD(p, **options))
    line = probe_cost.measure("sine field", way, CPU, True, 0.0, tmp_path / "probe.jsonl")
    assert math.isfinite(records(tmp_path / "probe.jsonl")[0]["cost"])
    assert "here" in line


def test_differences_are_compared_with_the_exact_product():
    """The error of the smooth network falls with the square of the step, until it rounds."""
    cells = difference_error.measure("sine field", [1e-1, 1e-2])
    (coarse, moved), (fine, _) = ([float(x.strip("()")) for x in c.split()] for c in cells)
    assert 50 < coarse / fine < 200
    assert moved == pytest.approx(3 * coarse, rel=0.2)  # (4 - 1) e^2 / 6


def test_the_bare_cost_counts_what_comes_on_top_of_a_gradient():
    runs = bare_probe.calls(MODELS["sine field"](CPU, True))
    assert all(run() is None for run in runs.values())
    times = {"SGD": [2.0, 2.0], "gradient": [1.0, 1.0], "torch's": [5.0, 5.0], "ours": [3.0, 3.0]}
    assert [bare_probe.cost(times, way) for way in ("torch's", "ours")] == [2.0, 1.0]


def test_ours_and_torchs_second_derivatives_are_timed_side_by_side(monkeypatch):
    """Each of them runs, and neither is left in the place of the other."""
    seen = []

    def timed(runs, *_, **__):
        for name, run in runs.items():
            with torch.profiler.profile() as profile:
                run()
            behind = any("_Known" in event.key for event in profile.key_averages())
            seen.append((name, behind))
        return {"ours": [2.0], "torch's": [1.0]}

    monkeypatch.setattr(second_derivatives, "interleaved", timed)
    for make in second_derivatives.OPERATIONS.values():
        assert second_derivatives.ratio(make, 64, 0.0) == 2.0
    assert seen == [("ours", True), ("torch's", False)] * len(second_derivatives.OPERATIONS)


class Traced(ESGD):
    """In the place of a fused ESGD, which would be built first."""

    def __init__(self, params, fused=False, **options):
        super().__init__(params, capturable=fused, **options)


def test_every_way_to_update_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(update_bandwidth, "ESGD", Traced)
    monkeypatch.setattr(update_bandwidth.fused, "compiled", lambda: on_device.step)
    update_bandwidth.measure("here", [(4, 3), (5,)], CPU, 0.0, tmp_path / "update.jsonl")
    found = records(tmp_path / "update.jsonl")
    names = {r["method"] for r in found}
    assert {"copy", "SGD", "AdamW, fused", "ESGD, compiled foreach", "folding a product"} <= names
    assert all(min(r["times"]) > 0 for r in found)
    assert "| folding a product |" in TABLES["update"](found)


def test_every_part_of_an_iteration_is_timed(monkeypatch):
    monkeypatch.setattr(host_cost, "ESGD", Traced)
    found = host_cost.measure(CPU, 2)
    assert next(iter(found)) == "SGD"
    for times in found.values():
        assert list(times) == [*host_cost.PARTS, "all"]
        assert min(times.values()) > 0


def test_plain_and_fused_paths_are_compared(monkeypatch):
    monkeypatch.setattr(replay, "ESGD", Traced)
    found = replay.compare("sine field", CPU, True)
    assert found["fused from plain"] < 1e-4
    assert found["fused from itself"] == 0
    assert isinstance(Plain.hessian, bool)
