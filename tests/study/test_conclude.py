"""Ending a study for good: what a checkpoint knows is recorded, what is recorded stays."""

import subprocess
import sys

import pytest

from equilibrate.study import checkpoint
from equilibrate.study.conclude import conclude, so_far
from equilibrate.study.files import StudyError
from equilibrate.study.journal import Journal, read_records
from tests.study.small import checkpoints, run, stopped, trials


def test_unfinished_trials_are_recorded_as_cut_with_their_curves(tmp_path):
    whole = run(tmp_path / "whole")
    stopped(tmp_path, 7, checkpoint_seconds=0.0)
    recorded = read_records(tmp_path)  # diverged before
    ended = {record["key"]: record for record in conclude(tmp_path)}
    assert ended
    assert not ended.keys() & recorded.keys()
    for key, record in ended.items():
        curve, full = record["curve"], whole[key]["curve"]
        assert record["status"] == "cut"
        assert 0 < curve["updates"][-1] < full["updates"][-1]
        assert curve["error"] == full["error"][: len(curve["error"])]
        assert record["final_error"] == curve["error"][-1]
        assert record["settings"] == whole[key]["settings"]
    assert not checkpoints(tmp_path)
    assert read_records(tmp_path).keys() == recorded.keys() | ended.keys()


def test_a_concluded_trial_is_not_trained_again(tmp_path):
    stopped(tmp_path, 7, checkpoint_seconds=0.0)
    ended = {record["key"] for record in conclude(tmp_path)}
    begun = []

    def make(asked):
        begun.extend(asked)
        return pytest.fail("trained again") if ended & {t.key for t in asked} else None

    with pytest.raises(AttributeError):  # no trainer: the others would have been trained
        run(tmp_path, make_trainer=make)
    assert {t.key for t in begun} <= {t.key for t in trials()} - ended


def test_the_command_says_what_it_did_or_why_not(tmp_path):
    stopped(tmp_path, 7, checkpoint_seconds=0.0)
    command = [sys.executable, "-m", "equilibrate.study.conclude", str(tmp_path)]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cut at epoch 2 of 4" in first.stdout
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "nothing to conclude" in second.stderr


def test_a_checkpoint_of_an_earlier_version_is_refused_and_kept(tmp_path):
    stopped(tmp_path, 7, checkpoint_seconds=0.0)
    (path,) = checkpoints(tmp_path)
    state = checkpoint.load(path)
    del state["records"]
    checkpoint.save(path, state)
    with pytest.raises(StudyError, match="earlier version"):
        conclude(tmp_path)
    assert checkpoints(tmp_path) == [path]


def test_a_folder_without_a_study_is_refused_and_left_alone(tmp_path):
    with pytest.raises(StudyError, match="no checkpoint"):
        conclude(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def _bytes(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_known_so_far_is_what_would_be_concluded_and_changes_nothing(tmp_path):
    stopped(tmp_path, 7, checkpoint_seconds=0.0)
    before = _bytes(tmp_path)
    found = so_far(tmp_path)
    assert _bytes(tmp_path) == before
    assert [record["key"] for record in found] == [record["key"] for record in conclude(tmp_path)]


def test_lines_so_far_are_records_of_a_copy_that_has_no_checkpoint(tmp_path):
    folder, copy = tmp_path / "lost", tmp_path / "copy"
    stopped(folder, 7, checkpoint_seconds=0.0)
    recorded, found, file = read_records(folder), so_far(folder), tmp_path / "so-far.jsonl"
    command = [sys.executable, "-m", "equilibrate.study.conclude", str(folder)]
    with Journal(folder):  # as while it runs: a lock that `conclude` would wait for
        done = subprocess.run(
            [*command, "--so-far", str(file)], capture_output=True, text=True, check=True
        )
    assert "trained so far, at epoch 2 of 4" in done.stdout
    copy.mkdir()
    lines = (folder / "records.jsonl").read_bytes() + file.read_bytes()
    (copy / "records.jsonl").write_bytes(lines)
    assert read_records(copy).keys() == recorded.keys() | {record["key"] for record in found}


def test_a_damaged_checkpoint_is_told_and_left_where_it_is(tmp_path):
    stopped(tmp_path, 7, checkpoint_seconds=0.0)
    (path,) = checkpoints(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    before = _bytes(tmp_path)
    with pytest.raises(StudyError, match="cut off or was changed"):
        so_far(tmp_path)
    assert _bytes(tmp_path) == before
