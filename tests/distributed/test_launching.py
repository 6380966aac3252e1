"""The launcher itself: what fails to begin is tried again, what fails on the way is not."""

import os

import pytest

from tests.distributed import launching
from tests.distributed.launching import outcomes, run

pytestmark = [pytest.mark.distributed, pytest.mark.xdist_group("ranks")]


def _rank(rank, world):
    return rank


def _dies(rank, world, count):
    with open(count, "a") as file:
        file.write("x")
    os._exit(1)


def test_processes_that_are_gone_are_replaced_before_a_scenario_begins():
    run(_rank, 2)
    (pool,) = launching._pool
    pool.members[1].kill()
    pool.members[1].join()
    assert run(_rank, 2) == [0, 1]
    assert launching._pool[0] is not pool


def test_a_scenario_that_kills_its_process_runs_once_and_fails_alone(tmp_path):
    count = tmp_path / "count"
    with pytest.raises((EOFError, ConnectionError)):
        outcomes(_dies, 1, str(count))
    assert count.read_text() == "x"
    assert run(_rank, 1) == [0]
