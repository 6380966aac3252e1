"""`equilibrate compare` as a user runs it, on the problem file and command of the docs page."""

import errno
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from equilibrate.cli import main
from equilibrate.study import command
from equilibrate.study.compare import Plan, adapted
from equilibrate.study.contenders import CONTENDERS, find_method
from equilibrate.study.journal import Journal
from equilibrate.study.looks import MissingExtra
from equilibrate.study.methods import METHODS
from equilibrate.study.problems import BUILT_IN
from tests.study.page import COMMAND, FILE, FOLDER, SMALL, said, status_of


def equilibrate(arguments, folder, **options):
    words = [sys.executable, "-m", "equilibrate.cli", *arguments]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """A user's folder after the page's command, and what the command said."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "wave.py").write_text(FILE)
    return folder, equilibrate(shlex.split(COMMAND)[1:], folder)


def test_the_problem_file_of_the_page_is_short():
    assert len(FILE.splitlines()) < 30


def test_the_command_of_the_page_compares_its_four_methods(user):
    folder, run = user
    assert run.returncode == 0, run.stderr
    rows = [line for line in run.stdout.splitlines() if line.startswith("| ")][2:]
    assert {row.split("|")[1].strip() for row in rows} == {
        "SGD", "Adam", "ESGD (as shipped)", "NAdam",
    }  # fmt: skip
    names = ["table.md", "summary.json", "compare.png", "compare.svg", "records.jsonl"]
    for path in (FOLDER / name for name in names):
        assert (folder / path).stat().st_size > 0
        assert str(path) in run.stdout
    assert (folder / FOLDER / "table.md").read_text() in run.stdout


def test_every_method_has_as_many_trials_and_its_winner_every_seed(user):
    folder, _ = user
    lines = (folder / FOLDER / "records.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert len({record["key"] for record in records}) == len(records) == 4 * (4 + 2)
    for name in ("sgd", "adam", "esgd", "torch.optim:NAdam"):
        seeds = [record["seed"] for record in records if record["method"] == name]
        assert sorted(seeds) == [0, 0, 0, 0, 1, 2]
    outcomes = json.loads((folder / FOLDER / "summary.json").read_text())["outcomes"]
    for outcome in outcomes:
        own = [r for r in records if r["method"] == outcome["method"] and r["seed"] == 0]
        assert outcome["settings"] == min(own, key=lambda r: r["final_error"])["settings"]


def test_the_same_command_again_computes_nothing(user):
    folder, first = user
    names = ("records.jsonl", "table.md", "summary.json", "compare.png", "compare.svg")
    before = {name: (folder / FOLDER / name).read_bytes() for name in names}
    again = equilibrate(shlex.split(COMMAND)[1:], folder)
    assert again.returncode == 0, again.stderr
    assert {name: (folder / FOLDER / name).read_bytes() for name in names} == before
    assert again.stdout == first.stdout
    assert again.stderr.count("everything is recorded already") == 2


def test_a_larger_command_keeps_the_records_and_adds_to_them(here, capsys):
    assert main(["compare", "wave:wave", *SMALL]) == 0
    path = here / FOLDER / "records.jsonl"
    before = path.read_bytes()
    assert main(["compare", "wave:wave", *SMALL, "--seeds", "2", "--trials", "3"]) == 0
    assert path.read_bytes().startswith(before)
    assert len(path.read_text().splitlines()) == 3 + 1


OPTIONS = {
    "halving": ["--search", "halving", "--trials", "3", "--epochs", "3", "--methods", "adam"],
    "float64": ["--precision", "float64"],
    "a schedule": ["--schedule", "ramp:5+cosine"],
    "momentum": ["--momentum", "0.9"],
    "a batch size": ["--batch-size", "100"],
    "a target": ["--target", "0.5"],
    "one at a time": ["--at-once", "1"],
    "two at once": ["--at-once", "2"],
    "a folder": ["--out", "elsewhere/deep"],
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(options, here, capsys):
    assert main(["compare", "wave:wave", *SMALL, *options]) == 0
    folder = Path("elsewhere/deep") if "--out" in options else FOLDER
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    first = records[0]
    expected = {
        "--precision": first["precision"],
        "--schedule": first["settings"].get("lr_schedule"),
        "--momentum": str(first["settings"].get("momentum")),
        "--batch-size": str(first["batch_size"]),
        "--at-once": str(first["together"]),
    }
    assert expected.get(options[0], options[1]) == options[1]
    if "halving" in options:
        assert sorted(r["status"] for r in records) == ["cut", "cut", "finished"]
    if "--target" in options:
        assert "updates to 0.5" in capsys.readouterr().out


# What a user can get wrong: arguments, exit status, and words of the one line that says it.
MISTAKES = {
    "no such problem": (["mnits"], 2, "no problem 'mnits'; did you mean mnist? there are mnist, "),
    "no such module": (["nowhere:thing"], 2, "there is no module 'nowhere'"),
    "no module": ([":wave"], 2, "no problem ':wave'; there are mnist, "),
    "a relative module": ([".wave:wave"], 2, "no problem '.wave:wave'; there are mnist, "),
    "no such submodule": (["torch.nowhere:thing"], 2, "is torch/nowhere.py in this folder?"),
    "no such name": (["wave:wvae"], 2, "wave has no 'wvae'; problems in it: wave"),
    "not a problem": (["wave:nn"], 2, "must be an equilibrate.study.Problem"),
    "a problem with a dot": (["wave.wave"], 2, "did you mean wave:wave? there are mnist, "),
    "no such method": (["wave:wave", "--methods", "lion"], 2, "no method 'lion'; there are sgd, "),
    "a method misspelt": (
        ["wave:wave", "--methods", "esdg"], 2, "no method 'esdg'; did you mean esgd? there are",
    ),
    "a method with a dot": (
        ["wave:wave", "--methods", "torch.optim.NAdam"], 2, "did you mean torch.optim:NAdam?",
    ),
    "a method without its module": (
        ["wave:wave", "--methods", "NAdam"], 2, "did you mean torch.optim:NAdam?",
    ),
    "a method in capitals": (["wave:wave", "--methods", "SGD"], 2, "did you mean sgd?"),
    "a class misspelt": (
        ["wave:wave", "--methods", "torch.optim:Nadam"], 2,
        "neither a Method nor a torch optimizer class; did you mean NAdam?",
    ),
    "no such method module": (
        ["wave:wave", "--methods", "nowhere:Adam"], 2, "there is no module 'nowhere'",
    ),
    "no method module": (
        ["wave:wave", "--methods", ":Adam"], 2, "no method ':Adam'; did you mean adam? there are",
    ),
    "a relative method module": (
        ["wave:wave", "--methods", ".optim:Adam"], 2, "no method '.optim:Adam'; there are sgd, ",
    ),
    "not an optimizer": (
        ["wave:wave", "--methods", "torch:Tensor"], 2, "neither a Method nor a torch optimizer",
    ),
    "no trials": (["wave:wave", "--trials", "0"], 2, "'0' is not a whole number of 1 or more"),
    "half an epoch": (["wave:wave", "--epochs", "0.5"], 2, "'0.5' is not a whole number"),
    "too many threads": (["wave:wave", "--threads", "9" * 20], 2, "from 1 to 1024"),
    "too much momentum": (["wave:wave", "--momentum", "1"], 2, "from 0 to below 1"),
    "no number": (["wave:wave", "--target", "nan"], 2, "'nan' is not a number"),
    "no such precision": (["wave:wave", "--precision", "half"], 2, "choose from"),
    "tf32 on the CPU": (["wave:wave", "--precision", "tf32"], 2, "--device cuda"),
    "no such schedule": (["wave:wave", "--schedule", "step"], 2, "no learning-rate schedule"),
    "too large a batch": (["wave:wave", "--batch-size", "1001"], 2, "between 1 and 1000"),
    "no such data folder": (["mnist", "--data", "nowhere"], 2, "there is no folder nowhere"),
    "no data in it": (["mnist", "--data", "."], 2, "does not exist. Get"),
    "a file as folder": (["wave:wave", "--out", "wave.py"], 1, "choose another"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_line(mistake, here, capsys):
    arguments, status, words = MISTAKES[mistake]
    assert status_of(["compare", *arguments]) == status
    last = said(capsys)[-1]
    assert words in last
    assert last.startswith("equilibrate compare: ")


def test_without_cuda_it_says_so(here, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["compare", "wave:wave", "--device", "cuda"]) == 2
    assert "no CUDA device" in said(capsys)[-1]


def test_without_matplotlib_it_says_so_before_training(here, capsys, monkeypatch):
    def missing():
        raise MissingExtra("drawing needs matplotlib: pip install 'equilibrate[paper]'")

    monkeypatch.setattr(command, "require_drawing", missing)
    assert main(["compare", "wave:wave", *SMALL]) == 1
    assert "equilibrate[paper]" in said(capsys)[-1]
    assert not (here / "out").exists()


def test_a_fault_in_the_users_own_file_keeps_its_traceback(here):
    (here / "broken.py").write_text("import a_module_that_is_not_there\n")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        main(["compare", "broken:problem"])


def test_a_full_device_says_what_to_do(here, capsys, monkeypatch):
    def full(*arguments):
        raise command.torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(command, "compare", full)
    assert main(["compare", "wave:wave", *SMALL]) == 1
    assert "--at-once" in said(capsys)[-1]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "term"]
)
def test_a_signal_stops_it_and_the_same_command_goes_on(number, status, tmp_path):
    (tmp_path / "wave.py").write_text(FILE)
    long = ["compare", "wave:wave", "--methods", "sgd", "--trials", "2", "--epochs", "100000"]
    words = [sys.executable, "-c", RESTORED, *long]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        wait_for(tmp_path / FOLDER / "checkpoints", running)
        running.send_signal(number)
        _, error = running.communicate(timeout=60)
    assert running.returncode == status, error
    assert error.strip().splitlines()[-1].endswith("the same command goes on from the records")
    assert "Traceback" not in error


def numbers(folder):
    lines = (folder / "records.jsonl").read_text().splitlines()
    return {r["key"]: (r["status"], r["curve"]["error"]) for r in map(json.loads, lines)}


@pytest.mark.parametrize("at_once", ["1", "2"])
@pytest.mark.parametrize("moment", [1, 4, 9])
def test_an_interrupted_command_ends_with_the_numbers_of_one_that_was_not(
    at_once, moment, here, capsys, monkeypatch
):
    words = ["compare", "wave:wave", *SMALL, "--seeds", "2", "--at-once", at_once]
    assert main([*words, "--out", "undisturbed"]) == 0
    with monkeypatch.context() as patch:
        calls = iter(range(1, 1000))

        def stop(live, now):
            if next(calls) == moment:
                raise KeyboardInterrupt

        patch.setattr("equilibrate.study.live.Live.__call__", stop)
        assert main([*words, "--out", "stopped"]) == 130
    assert main([*words, "--out", "stopped"]) == 0
    assert numbers(here / "stopped") == numbers(here / "undisturbed")


# A process started in the background of a shell ignores SIGINT; Python then never raises.
RESTORED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from equilibrate.cli import main
sys.exit(main(sys.argv[1:]))
"""


def wait_for(folder, running):
    """Wait until training has left a checkpoint; a process that ended early fails the test."""
    while not (folder.is_dir() and any(folder.glob("*.pt"))):
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(0.05)


def test_a_second_process_on_the_folder_is_refused(here, capsys):
    with Journal(here / FOLDER):
        assert main(["compare", "wave:wave", *SMALL]) == 1
    assert "another process is writing" in said(capsys)[-1]


def test_a_read_only_folder_is_refused(here, capsys, monkeypatch):
    def read_only(folder):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("equilibrate.study.journal.make_folder", read_only)
    assert main(["compare", "wave:wave", *SMALL]) == 1
    assert "the folder is read-only; make it writable or choose another" in said(capsys)[-1]


def test_help_lists_problems_and_methods(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    text = capsys.readouterr().out
    for name in (*CONTENDERS, *BUILT_IN, "module:name"):
        assert f"  {name} " in text


def test_momentum_is_set_where_there_is_one_and_the_others_are_named():
    names = ["sgd", "nag", "adam", "torch.optim:NAdam"]
    methods, without = adapted([find_method(name) for name in names], momentum=0.5)
    assert without == ["adam", "torch.optim:NAdam"]
    assert [m.fixed.get("momentum") for m in methods] == [0.5, 0.5, None, None]
    assert "momentum" not in methods[1].space
    assert "momentum" in METHODS["nag"].space  # the registry is untouched


@pytest.mark.parametrize("lost", [{"status": "diverged"}, {"final_error": 1e9}])
def test_a_plan_searches_at_seed_0_and_repeats_winners_alone(lost):
    problem = SimpleNamespace(name="p", fingerprint="f", batch_size=5)
    plan = Plan(problem, [METHODS["sgd"], METHODS["adam"]], trials=3, epochs=2, seeds=3)
    searched = plan.searched()
    assert [t.method for t in searched] == ["sgd"] * 3 + ["adam"] * 3
    assert {t.seed for t in searched} == {0}
    records = [
        {**t.describe(), "status": "finished", "final_error": float(place),
         "curve": {"error": [9.0]}, **(lost if t.method == "adam" else {})}
        for place, t in enumerate(searched)
    ]  # fmt: skip
    repeated = plan.repeated(records)
    assert [(t.method, t.seed) for t in repeated] == [("sgd", 1), ("sgd", 2)]
    assert all(t.settings == searched[0].settings for t in repeated)
