"""The command: what cannot be inspected ends with an explanation and status 2, no traceback."""

import os

import pytest
from torch.nn import MSELoss
from torch.nn.attention import SDPBackend, sdpa_kernel

from equilibrate.cli import main
from equilibrate.inspect import inspect_model, verdict
from tests.inspect.problems import recomputes, sequences, small

TROUBLED = {
    "nothing": "nn.Parameter",
    "frozen": "requires a gradient",
    "nan": "nan",
    "vector": ".mean()",
    "number": "must be one number",
    "linear": "no curvature at all",
    "detached": "detached",
    "once": "without once_differentiable. The reason: ",
    "recomputes": "with sdpa_kernel(SDPBackend.MATH): inspect_model(...), or, for the command, ",
    "shapes": "cannot be computed",
    "infinite": "second derivative is not",
    "absent": "has no 'absent'",
}


@pytest.mark.parametrize(("name", "words"), TROUBLED.items(), ids=TROUBLED.keys())
def test_a_model_that_cannot_be_inspected_is_explained(name, words, tmp_path, capsys):
    path = tmp_path / "report.html"
    status = main(["inspect", f"tests.inspect.problems:{name}", "--quick", "--out", str(path)])
    told = capsys.readouterr().err
    assert status == 2
    assert words in told
    assert "equilibrate inspect: " in told
    assert "optimizer" not in told  # there is none here
    assert not path.exists()


@pytest.mark.parametrize("problem", ["attends", "attends_by_math"])
def test_attention_is_inspected_as_the_error_says(problem, tmp_path, capsys):
    path, network = tmp_path / "report.html", recomputes.network(0)
    asked = f"tests.inspect.problems:{problem}"
    assert main(["inspect", asked, "--quick", "--out", str(path)]) == 0
    with sdpa_kernel(SDPBackend.MATH):
        found = inspect_model(network, sequences(), MSELoss(), batch_size=20, quick=True)
    by = verdict(found).partition(" by ")[2].partition(" [")[0]  # its interval holds more rounding
    assert f" by {by} [" in path.read_text()


def test_an_unknown_name_lists_the_known_ones(capsys):
    assert main(["inspect", "unknown"]) == 2
    assert "curves-like" in capsys.readouterr().err


def test_a_built_in_problem_is_made_from_the_folder_of_its_data(tmp_path, monkeypatch, capsys):
    asked = []
    made = {"curves-like": lambda folder: asked.append(folder) or small}
    monkeypatch.setattr("equilibrate.inspect.command.BUILT_IN", made)
    path = tmp_path / "report.html"
    arguments = ["--quick", "--data", str(tmp_path), "--out", str(path)]
    assert main(["inspect", "curves-like", *arguments]) == 0
    assert asked == [tmp_path]
    assert path.exists()
    assert "100%" in capsys.readouterr().err  # the progress bar


MISTAKES = {
    "no module": ([":small"], "no problem ':small'; there are "),
    "a relative module": ([".problems:small"], "no problem '.problems:small'; there are "),
    "no name": (["tests.inspect.problems:"], "no problem 'tests.inspect.problems:'; there are "),
    "no such module": (["tests.nowhere.at:all"], "is tests/nowhere/at.py in this folder?"),
    "too large a seed": (["tests.inspect.problems:small", "--seed", "9" * 20], "below 2^63"),
    "half a seed": (["tests.inspect.problems:small", "--seed", "0.5"], "'0.5' is not a whole"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_line(mistake, tmp_path, capsys):
    arguments, words = MISTAKES[mistake]
    out = ["--quick", "--out", str(tmp_path / "report.html")]
    try:
        status = main(["inspect", *arguments, *out])
    except SystemExit as stop:  # argparse
        status = stop.code
    last = capsys.readouterr().err.splitlines()[-1]
    assert status == 2
    assert words in last
    assert last.startswith("equilibrate inspect: ")


@pytest.mark.parametrize("seed", [2**63 - 1, 1 - 2**63])
def test_the_ends_of_the_range_of_seeds_can_be_inspected(seed, tmp_path, capsys):
    path = tmp_path / "report.html"
    arguments = ["--quick", "--seed", str(seed), "--out", str(path)]
    assert main(["inspect", "tests.inspect.problems:small", *arguments]) == 0
    assert f"seed {seed}" in path.read_text()


@pytest.mark.parametrize("name", ["report.html", "report.partial", "report"])
def test_the_report_is_written_whatever_its_name_and_no_other_file_is_touched(
    name, tmp_path, capsys
):
    others = {"report.html", "report.partial", "report.html.partial", "report"} - {name}
    for other in others:
        (tmp_path / other).write_text("someone's own")
    path = tmp_path / name
    assert main(["inspect", "tests.inspect.problems:small", "--quick", "--out", str(path)]) == 0
    assert path.read_text().startswith("<!doctype html>")
    assert {file.name for file in tmp_path.iterdir()} == others | {name}
    assert {(tmp_path / other).read_text() for other in others} == {"someone's own"}


PLACES = {
    "folder": "a folder is in the place of the file",
    "file/report.html": "a file is in the place of the folder",
    "link/report.html": "a file is in the place of the folder",
    "pipe": "no ordinary file is there",
    "/proc/nowhere/report.html": "/proc/nowhere",  # a folder that nobody can make
}


@pytest.mark.parametrize(("place", "words"), PLACES.items(), ids=PLACES.keys())
def test_a_place_that_cannot_be_written_is_told_before_computing(place, words, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / place
    status = main(["inspect", "tests.inspect.problems:small", "--quick", "--out", str(path)])
    told = capsys.readouterr().err
    assert status == 1
    assert words in told
    assert "%" not in told  # of the progress bar
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "link", "pipe"]


@pytest.mark.parametrize("target", ["real.html", "deep/real.html"])
def test_a_link_stays_and_the_report_is_where_it_leads(target, tmp_path, capsys):
    (tmp_path / "real.html").write_text("old")
    path = tmp_path / "link.html"
    path.symlink_to(target)
    assert main(["inspect", "tests.inspect.problems:small", "--quick", "--out", str(path)]) == 0
    assert path.is_symlink()
    assert (tmp_path / target).read_text().startswith("<!doctype html>")
    assert str(path) in capsys.readouterr().out


def test_ctrl_c_before_a_command_has_begun_is_one_line(monkeypatch, capsys):
    def stopped():
        raise KeyboardInterrupt

    monkeypatch.setattr("equilibrate.cli.make_parser", stopped)
    assert main(["inspect", "tests.inspect.problems:small"]) == 130
    assert capsys.readouterr().err == "equilibrate: stopped; nothing was done\n"
