"""The measurement behind the defaults: what it runs, what it skips, the table of old records."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import defaults, momentum, share_of_the_edge
from benchmarks.small_problems import TASKS, Task
from tests.study.stacks import CPU, dense, regression

ROOT = Path(__file__).parent.parent


@pytest.fixture
def tasks(monkeypatch):
    """Small problems in the place of the real ones, one stacked and one not."""
    small = {
        "mnist": Task(lambda folder: dense((12, 8, 3, 8, 12), cases=16), 3, stacked=True),
        "field": Task(lambda folder: regression(), 3),
    }
    monkeypatch.setattr(defaults, "TASKS", {**TASKS, **small})


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("problem", ["mnist", "field"])
def test_every_run_is_recorded_once_and_a_second_measurement_adds_nothing(
    problem, tasks, tmp_path, capsys
):
    out = tmp_path / "defaults.jsonl"
    defaults.measure(out, None, CPU, [problem], 1)
    found = records(out)
    assert [defaults._key(record) for record in found] == [
        defaults._key(run) for run in defaults.runs(problem, 0)
    ]
    assert {record["method"] for record in found} == set(defaults.METHODS)
    assert all(1 <= len(record["errors"]) <= 3 for record in found)
    finite = [record["errors"][-1] for record in found if record["errors"][-1] is not None]
    assert len(finite) > len(found) / 2
    defaults.measure(out, None, CPU, [problem], 1)
    assert records(out) == found


def test_a_run_in_a_stack_has_the_errors_of_the_run_alone(tasks, monkeypatch):
    group = [run for run in defaults.runs("mnist", 0) if run["method"] == "ESGD"][:4]
    stacked = [history for _, history in defaults.train(group, None, CPU)]
    monkeypatch.setitem(defaults.TASKS, "mnist", Task(defaults.TASKS["mnist"].problem, 3))
    alone = [history for _, history in defaults.train(group, None, CPU)]
    for one, other in zip(stacked, alone, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_parts_are_means_and_none_where_a_run_had_diverged():
    assert defaults.parts([1.0, 3.0]) == [1.0, 3.0]
    assert defaults.parts([float(n) for n in range(40)])[:2] == [0.5, 2.5]
    assert defaults.parts([1.0, math.nan]) == [1.0, None]


def test_the_table_of_the_records_kept_is_the_one_on_the_page(capsys):
    defaults.table(ROOT / "docs" / "defaults.jsonl")
    page = (ROOT / "docs" / "defaults.md").read_text()
    tables = capsys.readouterr().out.strip().split("\n\n")
    assert len(tables) == 14
    for each in tables:
        assert each in page


def test_the_small_problems_train(tmp_path):
    problem = TASKS["field"].problem(None)
    network = problem.network(0)
    inputs, targets = problem.cases
    assert bool(torch.isfinite(problem.loss(network(inputs), targets)))
    assert TASKS["convolution"].problem(None).network(0)(torch.rand(2, 784)).shape == (2, 10)


def test_the_table_on_momentum_follows_from_its_records():
    lines = momentum.table(ROOT / "results/momentum/image-64-relu", [0.02, 0.05, 0.1, 0.2])
    assert "\n".join(lines) in (ROOT / "docs/momentum.md").read_text()
    chosen = {"growth": True, "limits": [None], "ramps": ["constant"]}
    rates = [0.005, 0.01, 0.02, 0.03]
    lines = momentum.table(ROOT / "results/momentum/curves-like", rates, **chosen)
    assert "\n".join(lines) in (ROOT / "docs/momentum.md").read_text()
    folder, rising = ROOT / "results/momentum-rising/curves-like", {"limits": [], "rising": [0.99]}
    lines = momentum.table(folder, rates[:3], **rising)
    assert "\n".join(lines) in (ROOT / "docs/momentum.md").read_text()
    longer = {"limits": [], "rising": [0.99, 0.995]}
    lines = momentum.table(ROOT / "results/momentum-rising-long/curves-like", [0.0095], **longer)
    assert "\n".join(lines) in (ROOT / "docs/momentum.md").read_text()
    for name in ("mnist", "curves-like"):
        both = {**chosen, "limits": [None, 0.1]}
        lines = momentum.table(ROOT / "results/momentum-full" / name, rates, **both)
        assert "\n".join(lines) in (ROOT / "docs/momentum.md").read_text()


def test_the_shares_of_the_edge_are_tried_with_every_momentum(monkeypatch, capsys):
    """The network barely trains, so that the shares differ by how far they went."""
    name, few = "tanh, 6-32-1", 3
    short = replace(share_of_the_edge.PROBLEMS[name], updates=few)
    monkeypatch.setattr(share_of_the_edge, "PROBLEMS", {name: short})
    monkeypatch.setattr("sys.argv", ["share", "--seeds", "2", "--networks", name])
    share_of_the_edge.main()
    rows = capsys.readouterr().out.splitlines()[2:]
    kinds = share_of_the_edge.KINDS
    assert [row.split(" | ")[1] for row in rows] == [*kinds, *kinds]
    assert all(row.count(" of 2") == 4 for row in rows[len(kinds) :])


def test_a_run_that_ends_at_a_constant_or_worse_has_failed():
    assert share_of_the_edge.failures([0.5, 1.0, math.inf, math.nan, 2.0, 0.0]) == 4
    assert share_of_the_edge.cell([0.5, 0.25, 0.125]) == "0.25 (0.5)"
    assert share_of_the_edge.cell([0.5, 0.25, math.inf]) == "0.5 (1 of 3 failed)"
