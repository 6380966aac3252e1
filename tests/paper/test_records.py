"""Records: written whole, found again by their settings, never used when damaged."""

import json
import os

import pytest

from equilibrate.paper import records
from equilibrate.paper.records import NotRecorded, Store

SETTINGS = {"seed": 3, "sizes": (2, 3)}


def fill(store, value=1.5):
    return store.get("figure9", SETTINGS, lambda: {"value": value})


def test_a_record_is_computed_once_and_then_read(tmp_path):
    store = Store(tmp_path)
    first, computed = fill(store)
    again, recomputed = fill(store, value=99)
    assert (computed, recomputed) == (True, False)
    assert again == first
    assert again["data"] == {"value": 1.5}


def test_other_settings_are_another_record(tmp_path):
    store = Store(tmp_path)
    assert store.path("figure9", SETTINGS) != store.path("figure9", {**SETTINGS, "seed": 4})
    assert store.path("figure9", SETTINGS) != store.path("figure8", SETTINGS)


def test_a_record_says_what_made_it(tmp_path):
    made = fill(Store(tmp_path))[0]["provenance"]
    assert made["seed"] == 3
    assert made["seconds"] >= 0
    assert {"versions", "device", "threads", "command"} <= made.keys()


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def change(path):
    path.write_text(path.read_text().replace('"value":1.5', '"value":2.5'))


def empty(path):
    path.write_bytes(b"")


def binary(path):
    path.write_bytes(b"\xff\xfe\x00")


def list_instead(path):
    path.write_text("[1, 2]")


def without_data(path):
    content = {"figure": "figure9", "settings": {}}
    path.write_text(json.dumps({**content, "checksum": records.digest(content)}))


def of_other_settings(path):
    content = json.loads(path.read_text())
    del content["checksum"]
    content["settings"]["seed"] = 4
    path.write_text(json.dumps({**content, "checksum": records.digest(content)}))


DAMAGES = [cut, change, empty, binary, list_instead, without_data, of_other_settings]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_a_damaged_record_is_named_and_rebuilt(tmp_path, capsys, damage):
    fill(Store(tmp_path))
    path = Store(tmp_path).path("figure9", SETTINGS)
    damage(path)
    store = Store(tmp_path)
    record, computed = fill(store)
    assert computed
    assert record["data"] == {"value": 1.5}
    assert path.name in capsys.readouterr().err
    assert store.damaged == [path.name]
    assert fill(Store(tmp_path), value=99)[0] == record  # sound again


def test_a_failure_while_writing_leaves_the_old_record(tmp_path, monkeypatch):
    fill(Store(tmp_path))
    path = Store(tmp_path).path("figure9", SETTINGS)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        records.write(path, {"figure": "other"})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_frozen_store_never_computes(tmp_path):
    with pytest.raises(NotRecorded, match="figure9"):
        fill(Store(tmp_path, frozen=True))
    fill(Store(tmp_path))
    assert not fill(Store(tmp_path, frozen=True))[1]
