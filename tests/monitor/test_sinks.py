"""Where records go: JSON lines, TensorBoard, any callable."""

import json
import re
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch

from equilibrate.monitor import JSONLines, Monitor, TensorBoard, numbers
from tests.monitor.watched import small_model


def test_sinks(tmp_path):
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters())
    loss = model(torch.randn(8, 6)).square().mean()
    noted = []

    class Writer:
        def add_scalar(self, tag, value, step):
            noted.append((tag, value, step))

        def flush(self):
            pass

    lines, board = JSONLines(tmp_path / "deep" / "run.jsonl"), TensorBoard(Writer())
    seen = []
    sinks = [lines, board, seen.append]
    monitor = Monitor(model, optimizer, lambda record: [sink(record) for sink in sinks])
    monitor(loss)
    read = json.loads((tmp_path / "deep" / "run.jsonl").read_text())
    finite = numbers(seen[0])
    assert read["run"] == lines.run
    assert {k: v for k, v in read.items() if isinstance(v, (int, float))} == finite
    assert {tag: value for tag, value, _ in noted} == {k: finite[k] for k in finite if k != "step"}
    assert {step for _, _, step in noted} == {0}
    assert len(finite) > 50
    # What MLflow takes in a name (W&B takes any); and its folders have no room for x beside x/y.
    assert all(re.fullmatch(r"[\w.\-/ :]+", name) for name in finite)
    assert not {str(Path(name).parent) for name in finite} & set(finite)


def test_tensorboard_reads_what_was_written(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    sink = TensorBoard(tmp_path)
    for step in (0, 3):
        sink({"step": step, "loss": 0.5 + step, "layers/0.weight/share_flat": 0.25, "note": "x"})
    events = reader.EventAccumulator(str(tmp_path))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["layers/0.weight/share_flat", "loss"]
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(0, 0.5), (3, 3.5)]


def test_without_tensorboard_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        TensorBoard(tmp_path)


# What a user may add to a record, and what is read back.
ADDED = {
    "a number": (0.5, 0.5),
    "not a number": (float("nan"), None),
    "within a list": ([1.0, float("inf")], [1.0, None]),
    "within a dict": ({"a": (float("nan"), 2)}, {"a": [None, 2]}),
    "a mapping": (MappingProxyType({"a": float("nan")}), {"a": None}),
    "a tensor": (torch.tensor(0.25, requires_grad=True), 0.25),
    "a vector": (torch.tensor([1.0, float("nan")]), [1.0, None]),
    "NumPy's number": (np.float32(0.5), 0.5),
    "NumPy's array": (np.array([1, 2]), [1, 2]),
    "NumPy's infinity": (np.float64("inf"), None),
    "something else": (Path("run"), "run"),
}


@pytest.mark.parametrize("name", ADDED)
def test_json_lines_take_whatever_a_record_holds(name, tmp_path):
    given, read = ADDED[name]
    JSONLines(tmp_path / "run.jsonl", run="a")({"step": 0, "added": given})
    found = json.loads((tmp_path / "run.jsonl").read_text())
    assert found == {"run": "a", "step": 0, "added": read}


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_runs_in_one_file_are_told_apart_and_a_resumed_one_goes_on(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"step": 0, "loss": 2.0}\n')  # of a time before runs had names
    first, second = JSONLines(path), JSONLines(path)  # within one second
    for sink in (first, second, JSONLines(path, run=first.run)):
        sink({"step": 0})
    runs = [record.get("run") for record in _lines(path)]
    assert runs == [None, first.run, second.run, first.run]
    assert first.run != second.run
    assert [record["step"] for record in _lines(path)] == [0] * 4


def test_a_name_that_the_record_brings_is_kept(tmp_path):
    JSONLines(tmp_path / "run.jsonl", run="a")({"run": "mine"})
    assert _lines(tmp_path / "run.jsonl") == [{"run": "mine"}]


@pytest.mark.parametrize("name", ADDED)
def test_charts_show_the_finite_numbers_of_a_record(name):
    given, read = ADDED[name]
    assert numbers({"added": given}) == ({"added": read} if isinstance(read, float) else {})


# A file as it was left: what is read of it and of one more record.
LEFT = {
    "nothing": ("", []),
    "a whole line": ('{"step": 0}\n', ['{"step": 0}']),
    "a half line": ('{"step": 0}\n{"st', ['{"step": 0}', '{"st']),
    "only the newline missing": ('{"step": 0}', ['{"step": 0}']),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_record_after_a_kill_has_a_line_of_its_own(name, tmp_path):
    left, lines = LEFT[name]
    path = tmp_path / "run.jsonl"
    path.write_text(left)
    sink = JSONLines(path, run="a")
    for step in (1, 2):
        sink({"step": step})
    added = [f'{{"run": "a", "step": {step}}}' for step in (1, 2)]
    assert path.read_text().splitlines() == [*lines, *added]
