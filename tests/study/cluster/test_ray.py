"""A study on a real Ray cluster of two nodes: equal numbers; a node and a head may be killed."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from ray.cluster_utils import Cluster

from equilibrate.cli import main
from equilibrate.study.cluster import connected
from equilibrate.study.journal import read_records
from tests.study import real_study, small
from tests.study.cluster import slow

pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.xdist_group("ray")]

SMALL_STORE = {"object_store_memory": 80 * 2**20}
# Notice a dead node after two seconds, not after fifteen.
WATCHFUL = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
HEAD = {"num_cpus": 0, "include_dashboard": False, "_system_config": WATCHFUL, **SMALL_STORE}


def started(nodes):
    """A head that computes nothing, and nodes of one core each."""
    cluster = Cluster(initialize_head=True, head_node_args=HEAD)
    for _ in range(nodes):
        cluster.add_node(num_cpus=1, **SMALL_STORE)
    return cluster


@pytest.fixture(scope="module")
def cluster():
    cluster = started(2)
    yield cluster
    cluster.shutdown()


def test_numbers_are_those_of_a_local_run(cluster, tmp_path):
    """Stacks and trials alone, finished, diverged and cut."""
    with connected(cluster.address) as crew:
        for halving in (False, True):
            away = real_study.run(tmp_path / f"away-{halving}", halving=halving, crew=crew)
            home = real_study.run(tmp_path / f"home-{halving}", halving=halving)
            assert small.numbers(away) == small.numbers(home)
            assert {record["provenance"]["threads"] for record in away.values()} == {1}


def test_a_problem_of_the_users_own_goes_along(cluster, tmp_path, monkeypatch):
    """As `equilibrate compare` finds it; the workers see neither the file nor its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "of_mine.py").write_text("def answer():\n    return 42\n")
    import of_mine

    (tmp_path / "of_mine.py").unlink()
    with connected(cluster.address) as crew:
        assert crew.call(of_mine.answer) == 42


def test_a_signal_stops_the_command_as_it_does_at_home(cluster):
    """Ray would take SIGTERM for itself, and abort."""
    seen = []
    earlier = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with connected(cluster.address):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, earlier)
    assert seen == [signal.SIGTERM]


def test_compare_takes_a_cluster(cluster, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    page = (small.ROOT / "docs" / "compare.md").read_text()
    (tmp_path / "wave.py").write_text(page.split("```python\n")[1].split("```")[0])
    words = ["compare", "wave:wave", "--methods", "sgd", "esgd", "--trials", "2", "--epochs", "2"]
    words += ["--at-once", "2", "--threads", "1"]
    assert main([*words, "--out", "away", "--cluster", cluster.address]) == 0
    assert main([*words, "--out", "home"]) == 0
    away, home = (small.numbers(read_records(tmp_path / name)) for name in ("away", "home"))
    assert away == home
    assert len(away) == 4


def until(found, patience=60):
    """Return what `found()` returns as soon as it is something."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if (result := found()) is not None:
            return result
        time.sleep(0.05)
    raise TimeoutError


def test_a_node_killed_under_a_checkpointed_trial_costs_no_record(cluster, tmp_path, capfd):
    """The node is killed by SIGKILL, with a trial on it that has a checkpoint and goes on."""
    folder, victims = slow.prepared(tmp_path / "study"), []

    def kill():
        victims.append(until(lambda: slow.held(folder)))
        (node,) = (n for n in cluster.worker_nodes if n.node_id == victims[0][0])
        cluster.remove_node(node, allow_graceful=False)
        with contextlib.suppress(ProcessLookupError):  # it would notice by itself, but later
            os.kill(int(victims[0][3]), signal.SIGKILL)
        (folder / slow.HOLD).unlink()

    killer = threading.Thread(target=kill)
    killer.start()
    with connected(cluster.address) as crew:
        away = slow.run(folder, crew)
    killer.join()
    ((node, keys, _, _),) = victims
    assert "a worker was lost" in capfd.readouterr().err
    on = [(place, int(update)) for place, group, update, _ in slow.steps(folder) if group == keys]
    after = [update for place, update in on if place != node]
    assert after[0] > 0  # on the other node, from a checkpoint
    assert small.numbers(away) == small.numbers(small.run(tmp_path / "home"))


def test_the_head_killed_and_started_again_resumes(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "1")  # by itself it waits a minute
    folder = slow.prepared(tmp_path / "study")
    first = started(1)
    owner = _owner(first, folder)
    until(lambda: slow.held(folder))
    first.head_node.kill_all_processes(check_alive=False, allow_graceful=False)
    assert owner.wait(timeout=90) != 0
    first.shutdown()
    assert len(read_records(folder)) < len(small.trials())
    before = len(slow.steps(folder))
    (folder / slow.HOLD).unlink()
    second = started(1)
    try:
        assert _owner(second, folder).wait(timeout=90) == 0
    finally:
        second.shutdown()
    assert int(slow.steps(folder)[before][2]) > 0  # the first step of the second run
    assert small.numbers(read_records(folder)) == small.numbers(small.run(tmp_path / "home"))


def _owner(cluster, folder):
    words = [sys.executable, "-m", "tests.study.cluster.slow", cluster.address, str(folder)]
    return subprocess.Popen(words, cwd=small.ROOT)


def test_nothing_answers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ray.init", _refusing)
    words = ["compare", "curves-like", "--epochs", "1", "--trials", "1", "--cluster", "nowhere:1"]
    assert main(words) == 1
    assert "ray start --head" in capsys.readouterr().err


def _refusing(*arguments, **options):
    raise ConnectionError("nobody there")
