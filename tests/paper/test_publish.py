"""A published run redraws from its packed records, and nothing else."""

import json
from dataclasses import replace
from functools import partial

import pytest

from equilibrate.paper import figure3, figures, run
from equilibrate.paper.publish import publish
from equilibrate.study.journal import as_line, read_records
from tests.paper.shrunken import FIGURE3, PROBLEMS, shrink


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(run, "FIGURES", dict(figures.FIGURES))
    monkeypatch.setattr(figures, "FIGURES", run.FIGURES)
    shrink()


def test_a_published_run_redraws_from_its_records(small, tmp_path):
    names = ["figure1", "figure3"]
    out, results = tmp_path / "out", tmp_path / "results"
    run.run(names, out, quick=False, command="equilibrate paper")
    publish(out, results)
    (results / "report.html").unlink()
    (results / "figure3.svg").unlink()
    gone = {name: lambda folder, name=name: _no_data(name) for name in PROBLEMS}
    run.FIGURES["figure3"] = replace(
        run.FIGURES["figure3"], compute=partial(figure3.compute, problems=gone)
    )
    run.FIGURES.pop("demonstration")
    run.FIGURES.pop("figure2")
    assert FIGURE3.tasks  # all of it is asked for again, and nothing is computed
    for name in ("figure1", "figure3"):
        assert run._recorded(run.FIGURES[name], results, False) is not None
    run.run(["figure1"], results, quick=False, command="equilibrate paper")
    assert (results / "figure3.svg").read_bytes() == (out / "figure3.svg").read_bytes()
    claims = [json.loads((folder / "claims.json").read_text()) for folder in (out, results)]
    assert claims[0] == claims[1]
    told = (results / "README.md").read_text()
    assert all(word in told for word in ("commit", "command", "| cpu | 0:"))


def _no_data(name):
    problem = PROBLEMS[name](None)

    def data():
        raise AssertionError("redrawing must not read data")

    return replace(problem, data=data)


def test_publishing_the_same_records_again_changes_nothing(small, tmp_path):
    run.run(["figure3"], tmp_path / "out", quick=False, command="equilibrate paper")
    contents = []
    for name in ("one", "two"):
        publish(tmp_path / "out", tmp_path / name)
        files = sorted(p for p in (tmp_path / name).rglob("*") if p.is_file())
        contents.append([(p.relative_to(tmp_path / name), p.read_bytes()) for p in files])
    assert contents[0] == contents[1]


def test_an_unfinished_run_is_not_published(tmp_path):
    with pytest.raises(FileNotFoundError, match="equilibrate paper --out"):
        publish(tmp_path, tmp_path / "results")


def test_published_commands_name_no_folder_of_one_machine(small, tmp_path):
    out, results = tmp_path / "out", tmp_path / "results"
    run.run(["figure3"], out, quick=False, command="equilibrate paper")
    for path in (out / "records").glob("*/records.jsonl"):
        records = read_records(path.parent).values()
        told = [
            {**r, "provenance": {**r["provenance"], "command": f"paper {out}"}} for r in records
        ]
        bare = [{k: v for k, v in record.items() if k != "checksum"} for record in told]
        path.write_bytes(b"".join(map(as_line, bare)))
    publish(out, results)
    for path in (results / "records").iterdir():
        if path.is_dir():
            published = read_records(path).values()
            assert {r["provenance"]["command"] for r in published} == {"paper out"}
