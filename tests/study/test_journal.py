"""The journal: written whole, read back to the bit, repaired without losing a byte."""

import errno
import gzip
import json
import os
import resource
import subprocess
import sys

import pytest

from equilibrate.study.files import StudyError
from equilibrate.study.journal import Journal, read_records

RECORD = {"settings": {"lr": 0.1 + 0.2, "betas": (0.9, 0.99)}, "final_error": 5e-324, "rung": None}


def record(key):
    return {"key": key, **RECORD}


def fill(folder, *keys):
    with Journal(folder) as journal:
        for key in keys:
            journal.append(record(key))
    return folder / "records.jsonl"


def refuse(monkeypatch, name, code, *, when=lambda *arguments: True):
    """Let the operating system refuse a call."""
    allowed = getattr(os, name)

    def call(*arguments, **options):
        if when(*arguments):
            raise OSError(code, os.strerror(code))
        return allowed(*arguments, **options)

    monkeypatch.setattr(os, name, call)


def test_a_record_is_read_back_to_the_last_bit(tmp_path):
    fill(tmp_path, "a", "b")
    read = read_records(tmp_path)
    assert list(read) == ["a", "b"]
    assert read["a"]["settings"] == {"lr": 0.1 + 0.2, "betas": [0.9, 0.99]}
    assert read["a"]["final_error"] == 5e-324
    with Journal(tmp_path) as journal:
        assert journal.records == read


def test_what_append_returns_is_what_is_read_later(tmp_path):
    with Journal(tmp_path) as journal:
        stored = journal.append(record("a"))
    assert read_records(tmp_path)["a"] == stored


def test_every_line_is_a_json_object(tmp_path):
    path = fill(tmp_path, "a", "b")
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_pandas_reads_it_in_one_line(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_json(fill(tmp_path, "a", "b"), lines=True)
    assert list(frame["key"]) == ["a", "b"]
    assert frame["settings"][0]["lr"] == 0.1 + 0.2


def test_a_key_is_never_written_twice(tmp_path):
    path = fill(tmp_path, "a")
    before = path.read_bytes()
    with Journal(tmp_path) as journal, pytest.raises(ValueError, match="recorded already"):
        journal.append(record("a"))
    assert path.read_bytes() == before


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_never_written(tmp_path, bad):
    path = fill(tmp_path, "a")
    before = path.read_bytes()
    with Journal(tmp_path) as journal, pytest.raises(ValueError, match="finite"):
        journal.append({"key": "b", "curve": {"error": [1.0, bad]}})
    assert path.read_bytes() == before


def test_an_unfinished_last_line_is_cut_off_wherever_it_ends(tmp_path, capsys):
    path = fill(tmp_path, "a", "b")
    data = path.read_bytes()
    first = data.index(b"\n") + 1
    for length in range(first + 1, len(data) - 1):
        path.write_bytes(data[:length])
        with Journal(tmp_path) as journal:
            assert list(journal.records) == ["a"]
        assert path.read_bytes() == data[:first]
        assert "unfinished" in capsys.readouterr().err
    fill(tmp_path, "b")
    assert path.read_bytes() == data


def test_a_last_line_that_misses_only_its_newline_is_kept(tmp_path, capsys):
    path = fill(tmp_path, "a", "b")
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert list(read_records(tmp_path)) == ["a", "b"]
    fill(tmp_path)
    assert path.read_bytes() == data
    assert capsys.readouterr().err == ""


def change_a_number(line):
    return line.replace(b'"lr":0.3', b'"lr":0.4')


def cut_in_half(line):
    return line[: len(line) // 2]


def overwrite_by_zeros(line):
    return bytes(len(line))


def recorded_twice(line):
    return line.replace(b'"b"', b'"a"')


@pytest.mark.parametrize(
    "damage", [change_a_number, cut_in_half, overwrite_by_zeros, recorded_twice, lambda line: b"[]"]
)
def test_a_damaged_line_is_named_kept_aside_and_free_to_be_computed_again(tmp_path, capsys, damage):
    path = fill(tmp_path, "a", "b", "c")
    lines = path.read_bytes().splitlines()
    lines[1] = damage(lines[1])
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    assert list(read_records(tmp_path)) == ["a", "c"]
    fill(tmp_path, "b")
    assert "records.jsonl, line 2: damaged record" in capsys.readouterr().err
    assert list(read_records(tmp_path)) == ["a", "c", "b"]
    assert (tmp_path / "records.damaged").read_bytes() == lines[1] + b"\n"
    assert capsys.readouterr().err == ""  # named once: the file is sound again


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path):
    code = "import sys; from equilibrate.study.journal import *; print(list(read_records({0!r}))); "
    code += "Journal({0!r})"
    with Journal(tmp_path) as journal:
        journal.append(record("a"))
        command = [sys.executable, "-c", code.format(str(tmp_path))]
        other = subprocess.run(command, capture_output=True, text=True)
        with pytest.raises(StudyError, match="another process is writing"):
            Journal(tmp_path)
    assert other.stdout == "['a']\n"
    assert "StudyError: another process is writing" in other.stderr
    Journal(tmp_path).close()


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_refused_append_leaves_the_file_as_it_was(tmp_path, monkeypatch, call, code):
    path = fill(tmp_path, "a")
    before = path.read_bytes()
    with Journal(tmp_path) as journal:
        with monkeypatch.context() as patch:
            refuse(patch, call, code)
            with pytest.raises(StudyError, match=r"disk .* run the same command again"):
                journal.append(record("b"))
        assert path.read_bytes() == before
        assert list(journal.records) == ["a"]
        journal.append(record("b"))
    assert list(read_records(tmp_path)) == ["a", "b"]


def test_a_write_that_ends_early_is_taken_back(tmp_path):
    """The operating system takes a part of the line, then refuses: a limit on the file's size."""
    path = fill(tmp_path, "a")
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, hard))
        try:
            with pytest.raises(StudyError, match="limit on the size of a file"):
                journal.append(record("b"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == before
        journal.append(record("b"))
    assert list(read_records(tmp_path)) == ["a", "b"]


def test_a_folder_that_cannot_be_written_is_named_with_advice(tmp_path, monkeypatch):
    path = fill(tmp_path, "a")
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        refuse(patch, "open", errno.EROFS, when=lambda path, flags, *_: flags & os.O_CREAT)
        with pytest.raises(StudyError, match=f"{tmp_path}: the folder is read-only; make it"):
            Journal(tmp_path)
        assert list(read_records(tmp_path)) == ["a"]
    assert path.read_bytes() == before


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "study").write_text("not a folder")
    with pytest.raises(StudyError, match="a file is in the place of the folder"):
        Journal(tmp_path / "study")
    with pytest.raises(StudyError, match="a file is in the place of the folder"):
        Journal(tmp_path / "study" / "deeper")


def test_packed_records_are_read_and_gone_on_from(tmp_path):
    with Journal(tmp_path) as journal:
        journal.append({"key": "a", "final_error": 1.0})
    path = tmp_path / "records.jsonl"
    (tmp_path / "records.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert list(read_records(tmp_path)) == ["a"]
    assert not path.exists()  # reading writes nothing
    with Journal(tmp_path) as journal:
        journal.append({"key": "b", "final_error": 2.0})
    assert list(read_records(tmp_path)) == ["a", "b"]
