"""--jobs: parts of a run at the same time give the same records, and end with the command."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from equilibrate import cli
from equilibrate.paper import figure3, run
from equilibrate.paper.figures import FIGURES
from equilibrate.paper.processes import in_processes
from equilibrate.paper.records import Store
from equilibrate.study.files import StudyError
from equilibrate.study.progress import Progress
from tests.paper.shrunken import FIGURE3, PROBLEMS

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


# --- the parts of a run


def _named(name, quick):
    parts = run._parts(FIGURES[name], quick, run.Means())
    return [(*part.tasks, *part.arms) for part in parts]


def test_parts_are_tasks_and_in_a_quick_figure_arms():
    assert _named("figure1", True) == [()]
    assert _named("figure3", False) == [("mnist",), ("curves-like",)]
    quick = figure3.settings(True).tasks
    assert _named("figure3", True) == [(task.problem, arm) for task in quick for arm in task.arms]


def test_arms_of_a_quick_figure_trained_apart_are_the_figure(tmp_path):
    """Each in a folder of its own, so that no process waits for another's lock."""
    (task,) = (t for t in FIGURE3.tasks if t.problem == "curves-like")
    chosen = replace(FIGURE3, tasks=(task,), trials=1, seeds=1, quick=True)

    def computed(store, arms):
        asked = replace(chosen, tasks=(replace(task, arms=arms),))
        going = Progress("figure3", figure3.units(asked), stream=None)
        return figure3.compute(asked, store, going, PROBLEMS)

    for arm in task.arms:
        computed(Store(tmp_path, timed=False), (arm,))
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert folders == sorted(f"figure3-curves-like-quick-{arm}" for arm in task.arms)
    before = errors_of(tmp_path)
    assert computed(Store(tmp_path, frozen=True), task.arms)
    computed(Store(tmp_path, timed=False), task.arms)
    assert errors_of(tmp_path) == before


# --- the command, on figures that are small

NAMED = ["paper", "figure1", "figure3", "--quick", "--records-only"]


def started(*arguments):
    """On one thread: two jobs have half the threads each, and sums by two may round otherwise."""
    command = [sys.executable, "-m", "tests.paper.shrunken", *NAMED, *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment)


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
