"""Checkpoints: whole or absent, used only where they are sound."""

import errno
import os

import pytest
import torch

from equilibrate.study import checkpoint
from equilibrate.study.choices import Choices
from equilibrate.study.files import StudyError
from tests.study.test_journal import refuse

STATE = {"trainer": {"weights": torch.arange(6.0), "updates": 3}, "keys": ["a"], "seconds": 0.1}


def saved(folder):
    path = folder / "checkpoints" / "group.pt"
    checkpoint.save(path, STATE)
    return path


def test_a_state_comes_back_to_the_last_bit(tmp_path):
    state = checkpoint.load(saved(tmp_path))
    assert torch.equal(state["trainer"].pop("weights"), torch.arange(6.0))
    assert state == {"trainer": {"updates": 3}, "keys": ["a"], "seconds": 0.1}


def test_no_checkpoint_is_no_state(tmp_path, capsys):
    assert checkpoint.load(tmp_path / "group.pt") is None
    assert capsys.readouterr().err == ""


def cut_off(data):
    return data[:-1]


def cut_inside_the_header(data):
    return data[:40]


def change_one_bit(data):
    return data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]


def change_the_hash(data):
    return data[:30] + (b"0" if data[30:31] != b"0" else b"1") + data[31:]


def empty(data):
    return b""


@pytest.mark.parametrize(
    "damage", [cut_off, cut_inside_the_header, change_one_bit, change_the_hash, empty]
)
def test_a_damaged_checkpoint_is_named_put_aside_and_not_used(tmp_path, capsys, damage):
    path = saved(tmp_path)
    for number in (1, 2):
        damaged = damage(path.read_bytes())
        path.write_bytes(damaged)
        assert checkpoint.load(path) is None
        assert f"{path}: checkpoint not used" in capsys.readouterr().err
        assert not path.exists()
        assert path.with_name(f"group.pt.damaged-{number}").read_bytes() == damaged
        saved(tmp_path)


def test_nothing_but_tensors_and_plain_values_is_loaded(tmp_path, capsys):
    path = tmp_path / "group.pt"
    checkpoint.save(path, {"code": print})
    assert checkpoint.load(path) is None
    assert "cannot read it" in capsys.readouterr().err


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_refused_save_keeps_the_checkpoint_that_was_there(tmp_path, monkeypatch, call):
    path = saved(tmp_path)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        refuse(patch, call, errno.ENOSPC)
        with pytest.raises(StudyError, match="the disk is full; free some space"):
            checkpoint.save(path, {**STATE, "seconds": 0.2})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["group.pt"]


def test_discarding_removes_what_a_kill_left_too(tmp_path):
    path = saved(tmp_path)
    path.with_name("group.pt.partial").write_bytes(b"half a check")
    checkpoint.discard(path)
    assert not os.listdir(path.parent)
    checkpoint.discard(path)  # a kill may come between deleting and going on


def test_choices_are_made_once(tmp_path):
    assert Choices(tmp_path).remember("stack", lambda: (2, 3)) == [2, 3]
    assert Choices(tmp_path).remember("stack", lambda: pytest.fail("decided twice")) == [2, 3]
    Choices(tmp_path).set("other", 0.1)
    assert Choices(tmp_path).get("stack") == [2, 3]
    assert Choices(tmp_path).get("none") is None


@pytest.mark.parametrize("text", [b'{"stack": [2', b"", b"7", b"\xff"])
def test_damaged_choices_are_named_put_aside_and_made_anew(tmp_path, capsys, text):
    path = tmp_path / "choices.json"
    path.write_bytes(text)
    assert Choices(tmp_path).remember("stack", lambda: 4) == 4
    assert f"{path}: damaged" in capsys.readouterr().err
    assert (tmp_path / "choices.json.damaged-1").read_bytes() == text
