"""A full disk and a read-only folder end in a clear message, with earlier records intact."""

import json
import shutil
import subprocess
import sys

import pytest

from tests.study import small

PROGRAM = [sys.executable, "-m", "tests.study.troubled_study"]
TINY = "mount -t tmpfs -o size={size} none {folder}"


def mounted(folder, size):
    """The beginning of a command that has a small file system of its own at the folder."""
    mount = TINY.format(size=size, folder=folder)
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'{mount} && exec "$@"']


def may_mount(folder):
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*mounted(folder, "64k"), "sh", "true"], capture_output=True)
    return tried.returncode == 0


def answer(command):
    done = subprocess.run(command, capture_output=True, text=True, cwd=small.ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The first trials are recorded alone first, as in the troubled study."""
    folder = tmp_path_factory.mktemp("undisturbed")
    small.run(folder, small.trials()[:3])
    return small.numbers(small.run(folder))


def check(found, undisturbed, advice):
    for said in found["said"]:
        assert said is not None
        assert advice in said
        assert "run the same command again: what was recorded is kept" in said
    assert len(found["before"]) == 3
    assert all(record in found["during"] for record in found["before"])
    assert found["after"] == undisturbed
    assert found["left"] == ["checkpoints", "choices.json", "records.jsonl", "records.lock"]


def test_a_limit_on_the_size_of_files(tmp_path, undisturbed):
    found = answer([*PROGRAM, "limit", str(tmp_path)])
    check(found, undisturbed, "the limit on the size of a file is reached")


@pytest.mark.parametrize(
    ("trouble", "advice"),
    [
        ("full", "the disk is full; free some space"),
        ("read-only", "the folder is read-only; make it writable or choose another"),
    ],
)
def test_a_real_file_system_that_is(tmp_path, undisturbed, trouble, advice):
    if not may_mount(tmp_path):
        pytest.skip("an ordinary user may not mount here")
    command = [*mounted(tmp_path, "256k"), "sh", *PROGRAM, trouble, str(tmp_path)]
    check(answer(command), undisturbed, advice)
