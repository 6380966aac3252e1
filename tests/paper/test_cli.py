"""The command: resumes after a kill, redraws without computing, says what is wrong."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from equilibrate import cli
from equilibrate.paper import figure2, figure3, figure4, figures, run
from equilibrate.study import looks
from tests.paper.shrunken import shrink

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(run, "FIGURES", dict(figures.FIGURES))
    monkeypatch.setattr(figures, "FIGURES", run.FIGURES)
    shrink()


def start(out, *arguments, slow=0.0):
    command = [sys.executable, "-m", "tests.paper.shrunken", "paper", *arguments, "--out", str(out)]
    environment = {**os.environ, "SECONDS_A_PROBLEM": str(slow), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell that starts the tests in the background ignores Ctrl-C for all its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_records(out, count):
    for _ in range(600):
        found = sorted((out / "records").glob("figure2-*.json"))
        if len(found) >= count:
            return found
        time.sleep(0.05)
    raise AssertionError("no records")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_killed_run_goes_on_where_it_was(tmp_path, number, status):
    first = start(tmp_path, "figure2", slow=0.3)
    before = wait_for_records(tmp_path, 2)
    first.send_signal(number)
    _, said = first.communicate(timeout=60)
    assert first.returncode == status, said
    assert not (tmp_path / "report.html").exists()
    made = {path: path.stat().st_mtime_ns for path in before}
    assert cli.main(["paper", "figure2", "--out", str(tmp_path)]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == made  # not computed again
    assert (tmp_path / "report.html").exists()


def test_a_second_run_only_draws(tmp_path, monkeypatch, capsys):
    arguments = ["paper", "figure1", "figure2", "--quick", "--out", str(tmp_path)]
    assert cli.main(arguments) == 0
    assert str(tmp_path / "report-quick.html") in capsys.readouterr().out

    def refuse(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(figure2, "measure", refuse)
    for file in tmp_path.glob("figure*"):
        file.unlink()
    assert cli.main(arguments) == 0
    kinds = {
        f"{name}-quick.{kind}" for name in ("figure1", "figure2") for kind in ("svg", "pdf", "png")
    }
    assert kinds <= {path.name for path in tmp_path.iterdir()}


def test_a_damaged_record_is_named_and_rebuilt(tmp_path, capsys):
    cli.main(["paper", "figure1", "--out", str(tmp_path)])
    (record,) = (tmp_path / "records").glob("figure1-*.json")
    record.write_bytes(record.read_bytes()[:100])
    capsys.readouterr()
    assert cli.main(["paper", "figure1", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert f"rebuilt: {record.name}" in said
    json.loads(record.read_text())


def test_recorded_figures_join_a_report_that_did_not_ask_for_them(tmp_path):
    cli.main(["paper", "figure1", "--out", str(tmp_path)])
    cli.main(["paper", "demonstration", "--out", str(tmp_path)])
    page = (tmp_path / "report.html").read_text()
    assert 'id="figure1"' in page
    assert 'id="demonstration"' in page
    assert 'id="figure2"' not in page


def test_progress_and_time_left_go_to_stderr(tmp_path, capsys):
    cli.main(["paper", "figure1", "--quick", "--out", str(tmp_path)])
    caught = capsys.readouterr()
    assert "figure1 (quick)" in caught.err
    assert "100%" in caught.err
    assert len(caught.out.splitlines()) == 1


def test_too_many_jobs_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["paper", "figure1", "--quick", "--jobs", "9" * 20, "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "from 1 to 1024" in capsys.readouterr().err


def test_an_unknown_figure_is_named(tmp_path, capsys):
    assert cli.main(["paper", "figure7", "--out", str(tmp_path)]) == 2
    assert "figure7" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["figure1", "robustness"])
def test_a_task_is_refused_where_a_named_figure_has_none(name, tmp_path, capsys):
    command = ["paper", "figure4", name, "--task", "mnist", "--out", str(tmp_path / "out")]
    assert cli.main(command) == 2
    said = capsys.readouterr().err
    assert (
        said == f"--task is not for {name}, but for figure3, figure4, momentum, falling, damped\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_quick_task_without_its_data_says_what_is_missing_and_where(tmp_path, capsys):
    quick = replace(run.FIGURES["figure3"], settings=figure3.settings, compute=figure3.compute)
    run.FIGURES["figure3"] = quick
    data, out = tmp_path / "data", tmp_path / "out"
    command = ["paper", "figure3", "--task", "mnist", "--quick"]
    assert cli.main([*command, "--data", str(data), "--out", str(out)]) == 1
    said = capsys.readouterr().err
    assert f"{data / 'train-images-idx3-ubyte.gz'} does not exist. Get" in said
    assert "100%" not in said
    part = run.Means(data=data, tasks=("mnist",), arms=("esgd",))
    run._compute_part(("figure3", part), out=out, quick=True)
    assert not out.exists()  # nor by a job of several


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_place_of_the_folder_is_told_before_computing(place, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["paper", "figure1", "--quick", "--out", str(tmp_path / place)]) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path / place}: a file is in the place of the folder; choose another" in said
    assert "space" not in said
    assert "100%" not in said


def test_a_disk_that_refuses_gets_the_advice_for_its_reason(tmp_path, monkeypatch, capsys):
    def compute(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setitem(run.FIGURES, "figure1", replace(run.FIGURES["figure1"], compute=compute))
    assert cli.main(["paper", "figure1", "--out", str(tmp_path)]) == 1
    assert "the disk is full; free some space" in capsys.readouterr().err


def test_without_matplotlib_the_extra_is_asked_for_before_computing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(looks.importlib.util, "find_spec", lambda name: None)
    assert cli.main(["paper", "figure1", "--out", str(tmp_path)]) == 1
    assert "equilibrate[paper]" in capsys.readouterr().err
    assert not (tmp_path / "records").exists()


def test_matplotlib_is_loaded_only_for_drawing():
    code = "import sys, equilibrate.cli; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_both_ways_to_call_it_explain_themselves(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["paper", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("--quick", "--out", "figure1", "goes on where it was"))


def test_parts_computed_side_by_side_make_the_whole(tmp_path, monkeypatch, capsys):
    together, parts = tmp_path / "together", tmp_path / "parts"
    assert cli.main(["paper", "figure4", "--records-only", "--out", str(together)]) == 0
    for task in ("curves-like", "mnist"):
        command = ["paper", "figure4", "--records-only", "--task", task, "--out", str(parts)]
        assert cli.main(command) == 0
    assert "records after" in capsys.readouterr().out
    assert not (parts / "report.html").exists()
    names = [{path.name for path in (out / "records").iterdir()} for out in (together, parts)]
    assert names[0] == names[1]
    assert len(names[0]) == 2


def test_a_full_figure_without_a_gpu_is_refused_before_its_data_are_looked_for(
    tmp_path, monkeypatch, capsys
):
    full = replace(run.FIGURES["figure4"], settings=lambda quick: figure4.Settings())
    monkeypatch.setitem(run.FIGURES, "figure4", full)
    assert cli.main(["paper", "figure4", "--records-only", "--out", str(tmp_path)]) == 1
    assert "add --device cuda, or --quick" in capsys.readouterr().err
    assert not (tmp_path / "records").exists()


def test_a_missing_data_file_is_not_taken_for_a_full_disk(tmp_path, monkeypatch, capsys):
    def compute(*_):
        raise FileNotFoundError("digits.gz is missing: get it from the library")

    monkeypatch.setitem(run.FIGURES, "figure1", replace(run.FIGURES["figure1"], compute=compute))
    assert cli.main(["paper", "figure1", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "get it from the library" in said
    assert "cannot write" not in said


@pytest.mark.parametrize("arguments", [["figure1"], ["momentum", "--quick"]], ids=" ".join)
def test_without_cuda_it_says_so(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert cli.main(["paper", *arguments, "--device", "cuda", "--out", str(tmp_path / "out")]) == 2
    assert "no CUDA device" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
