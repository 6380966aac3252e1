"""--jobs: parts of a run at the same time give the same records, and end with the command."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from equilibrate import cli
from equilibrate.paper.processes import in_processes
from equilibrate.study.files import StudyError

ROOT = Path(__file__).parents[2]


def write(number, folder):
    (folder / str(number)).write_text(str(os.getpid()))


def fail_at_two(number, folder):
    if number == 2:
        raise StudyError("two")
    time.sleep(30)
    write(number, folder)


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


def test_every_item_is_done_in_another_process(tmp_path):
    in_processes(partial(write, folder=tmp_path), range(5), jobs=2)
    found = {path.name: int(path.read_text()) for path in tmp_path.iterdir()}
    assert sorted(found) == list("01234")
    assert os.getpid() not in found.values()


def test_what_one_raises_is_raised_here_and_the_others_are_stopped(tmp_path):
    with pytest.raises(StudyError, match="two"):
        in_processes(partial(fail_at_two, folder=tmp_path), [1, 2, 3], jobs=2)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_killed_is_told_with_what_to_do():
    with pytest.raises(StudyError, match="smaller --jobs"):
        in_processes(die, [1, 2], jobs=2)


def test_two_ways_to_share_the_work_are_one_too_many(capsys):
    assert cli.main(["paper", "figure1", "--jobs", "2", "--cluster", "local"]) == 2
    assert "choose one" in capsys.readouterr().err


# --- the command, on figures that are small

NAMED = ["paper", "figure1", "figure3", "--quick", "--records-only"]


def started(*arguments):
    command = [sys.executable, "-m", "tests.paper.shrunken", *NAMED, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def errors_of(folder):
    """The curves of every study, by trial."""
    lines = [line for path in folder.rglob("records.jsonl") for line in path.open()]
    records = [json.loads(line) for line in lines]
    return {record["key"]: record["curve"]["error"] for record in records}


@pytest.mark.slow
def test_the_records_are_those_of_one_job_and_times_come_last(tmp_path):
    one, two = (started("--out", tmp_path / str(jobs), "--jobs", jobs) for jobs in (1, 2))
    (_, said), _ = two.communicate(), one.communicate()
    assert (one.returncode, two.returncode) == (0, 0), said
    trained = errors_of(tmp_path / "2")
    assert trained
    assert trained == errors_of(tmp_path / "1")
    names = [sorted(p.name for p in (tmp_path / n / "records").iterdir()) for n in "12"]
    assert names[0] == names[1]  # the times of an update among them
    assert "\r" not in said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="children are looked for in /proc")
def test_the_processes_end_with_the_command(tmp_path):
    command = started("--out", tmp_path, "--jobs", 2)
    _wait_for(lambda: len(_children(command.pid)) >= 2)
    children = _children(command.pid)
    command.kill()
    command.wait()
    _wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def _children(process):
    path = Path(f"/proc/{process}/task/{process}/children")
    return path.read_text().split() if path.exists() else []


def _wait_for(reached):
    for _ in range(400):
        if reached():
            return
        time.sleep(0.1)
    pytest.fail("not reached within 40 seconds")
