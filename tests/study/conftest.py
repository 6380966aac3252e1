"""A user's folder."""

import sys

import pytest

from tests.study.page import FILE


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the user's file, in which the command runs in this process."""
    (tmp_path / "wave.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    return tmp_path
