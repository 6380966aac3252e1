"""A study killed by SIGKILL and resumed records what an undisturbed one does, to the last bit."""

import json
import subprocess
import sys

import pytest

from equilibrate.study.journal import read_records
from tests.study import real_study, small

SEARCHES = pytest.mark.parametrize("halving", [False, True], ids=["random", "halving"])
TRIALS = {False: small.trials, True: real_study.trials}  # by whether the trainers are the real ones


class Driver:
    """The program that runs studies in processes that die."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "deaths.log"
        self.errors = (folder / "stderr.log").open("w+")
        command = [sys.executable, "-m", "tests.study.killed_study"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        self.process = subprocess.Popen(command, text=True, cwd=small.ROOT, **pipes)
        self.undisturbed = {}

    def run(self, folder, halving, *, real=False, **death):
        study = {"folder": str(folder), "halving": halving, "real": real}
        request = {**study, "log": str(self.log), **death}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["status"] in (0, -9), (self.folder / "stderr.log").read_text()
        return answer

    def expected(self, halving, *, real=False):
        """The numbers of an undisturbed study, and the moments that it passed."""
        if (halving, real) not in self.undisturbed:
            folder = self.folder / f"undisturbed-{halving}-{real}"
            names = self.run(folder, halving, real=real)["names"]
            self.undisturbed[halving, real] = small.numbers(read_records(folder)), names
        return self.undisturbed[halving, real]

    def deaths(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    driver = Driver(tmp_path_factory.mktemp("kills"))
    yield driver
    driver.close()


def check(driver, folder, halving, *, real=False):
    """Resume without a kill, and find every trial recorded once, with the undisturbed numbers."""
    assert driver.run(folder, halving, real=real)["status"] == 0
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert len(lines) == len({line["key"] for line in lines}) == len(TRIALS[real]())
    assert small.numbers(read_records(folder)) == driver.expected(halving, real=real)[0]
    assert not list((folder / "checkpoints").iterdir())
    assert not list(folder.glob("*.damaged*"))


@SEARCHES
def test_the_undisturbed_study_holds_what_a_kill_could_spoil(driver, halving):
    numbers, names = driver.expected(halving)
    statuses = {record["status"] for record in numbers}
    assert statuses == {"finished", "diverged"} | ({"cut"} if halving else set())
    assert names.count("write records.jsonl") == len(small.trials())
    assert names.count("keep") >= 1
    assert max(record["together"] for record in numbers) == 3


@SEARCHES
def test_killed_twenty_times_in_one_study(driver, tmp_path, halving):
    before = len(driver.deaths())
    for kill in range(20):
        death = {"at": 10 + 5 * kill % 13, "kind": "write" if kill % 3 == 0 else ""}
        assert driver.run(tmp_path, halving, **death)["status"] == -9
    deaths = driver.deaths()[before:]
    assert len(deaths) == 20
    assert sum(name.startswith("write") for name in deaths) >= 5
    assert len({name.split()[0] for name in deaths}) >= 4
    check(driver, tmp_path, halving)


@SEARCHES
def test_killed_once_at_moments_spread_over_the_study(driver, tmp_path, halving):
    names = driver.expected(halving)[1]
    rare = ("write records", "write choices", "unlink", "keep", "mkdir")
    chosen = {at for at, name in enumerate(names, 1) if at % 15 == 0 or name.startswith(rare)}
    for at in sorted(chosen):
        folder = tmp_path / str(at)
        assert driver.run(folder, halving, at=at)["status"] == -9
        assert driver.deaths()[-1] == names[at - 1]
        check(driver, folder, halving)


@pytest.mark.parametrize("write", range(1, 9))
def test_killed_inside_the_write_of_every_record(driver, tmp_path, write):
    names = driver.expected(halving=False)[1]
    at = [at for at, name in enumerate(names, 1) if name == "write records.jsonl"][write - 1]
    folder = tmp_path / "study"  # to be made, as in the undisturbed study
    assert driver.run(folder, False, at=at)["status"] == -9
    text = (folder / "records.jsonl").read_bytes()
    assert text.count(b"\n") == write - 1
    assert not text.endswith(b"\n")  # the kill did fall inside the write
    assert len(read_records(folder)) == write - 1
    check(driver, folder, halving=False)


@SEARCHES
def test_killed_from_outside_at_any_time(driver, tmp_path, halving):
    for kill in range(6):
        driver.run(tmp_path, halving, after=0.01 + 0.01 * kill)
    check(driver, tmp_path, halving)


@SEARCHES
def test_the_real_study_trains_in_stacks_and_alone_and_holds_every_ending(driver, halving):
    numbers, names = driver.expected(halving, real=True)
    statuses = {record["status"] for record in numbers}
    assert statuses == {"finished", "diverged"} | ({"cut"} if halving else set())
    together = {record["method"]: record["together"] for record in numbers}
    assert together == {"sgd": 2, "esgd": together["esgd"], real_study.NADAM: 1}
    assert {record["together"] for record in numbers if record["method"] == "esgd"} == {1, 2}
    assert {"advance", "errors", "keep", "state_dict"} <= set(names)


@SEARCHES
def test_the_real_trainers_killed_twenty_times_in_one_study(driver, tmp_path, halving):
    """Spread over the whole study: a kill comes later than a resumed study needs to get going."""
    before = len(driver.deaths())
    for kill in range(20):
        death = {"at": 24 + 7 * kill % 19, "kind": "write" if kill % 3 == 0 else ""}
        assert driver.run(tmp_path, halving, real=True, **death)["status"] == -9
    deaths = driver.deaths()[before:]
    assert len(deaths) == 20
    assert sum(name.startswith("write") for name in deaths) >= 5
    assert len({name.split()[0] for name in deaths}) >= 4
    check(driver, tmp_path, halving, real=True)
