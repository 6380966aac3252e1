"""A published fight is redrawn from its packed records alone; tunings are thinned, finals not."""

import shutil
from dataclasses import replace

import pytest
import torch

from equilibrate.study.journal import PACKED, read_records
from equilibrate.wins import fight as fighting
from equilibrate.wins import pictures
from equilibrate.wins import publish as publishing
from equilibrate.wins.arena import Arena
from equilibrate.wins.fought import fought
from equilibrate.wins.page import page
from equilibrate.wins.publish import TERMS, publish, redraw
from equilibrate.wins.terms import Terms

TERMS_OF_ONE = Terms(
    ("decays",), first=3, tuning=1, finals=3, per_decade=1, extensions=0, epochs=20,
    fighters=("esgd", "adamw"),
)  # fmt: skip


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    out, results = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("results")
    Arena(out).train(
        fighting._finals(TERMS_OF_ONE.made()[0], TERMS_OF_ONE.plan, {"adamw": 0.5}), ""
    )
    one = fought(TERMS_OF_ONE, Arena(out))
    publish(one, out, results)
    return one, out, results


def test_the_page_is_that_of_the_records_as_they_were(published):
    one, _, results = published
    assert (results / "cosine.md").read_text() == page([one], pictures="{}/")


def test_everything_is_drawn_again_from_what_is_published(published, tmp_path):
    _, _, results = published
    shutil.copytree(results, tmp_path / "again")
    for path in [*tmp_path.glob("again/*.md"), *tmp_path.glob("again/*/*.png")]:
        path.unlink()
    redraw(tmp_path / "again")
    for path in results.rglob("*"):
        if path.is_file():
            assert (
                tmp_path / "again" / path.relative_to(results)
            ).read_bytes() == path.read_bytes()


def test_finals_are_whole_tunings_are_their_ends_and_other_trials_stay_at_home(published):
    one, out, results = published
    folder = results / one.terms.name / "records" / "decays"
    assert [path.name for path in folder.iterdir()] == [PACKED]
    packed, known = read_records(folder), read_records(out / "records" / "decays")
    finals, tuning = one.terms.plan.finals, one.terms.plan.tuning
    assert {r["instance"] for r in packed.values()} == {*finals, *tuning}
    for key, record in packed.items():
        points, before = record["curve"]["error"], known[key]["curve"]["error"]
        assert len(before) > 2
        tuned = record["settings"]["lr"] == one.results[0].best[record["fighter"]]
        whole = record["instance"] in finals and tuned
        assert points == (before if whole else [before[0], before[-1]])
    assert 0.5 in {r["settings"]["lr"] for r in known.values()} - {
        r["settings"]["lr"] for r in packed.values()
    }


def test_seconds_stay_at_home_and_all_else_is_as_it_was(published):
    one, out, results = published
    packed = read_records(results / one.terms.name / "records" / "decays")
    known = read_records(out / "records" / "decays")
    for key, record in packed.items():
        told, before = record["curve"], known[key]["curve"]
        assert before.keys() - told.keys() == {"seconds"}
        assert all(told[name][-1] == before[name][-1] for name in told)
        assert record["final_error"] == known[key]["final_error"]
        assert record["provenance"]["seconds"] == known[key]["provenance"]["seconds"]


@pytest.mark.parametrize("side", [64, 128, 256, 300])
def test_a_picture_is_published_no_larger_than_it_is_drawn(side):
    fault = torch.arange(side * side).view(side, side) % 1000 / 500 - 1
    record = {"data": {"fault": pictures.packed(fault)}, "settings": {"task": "one"}}
    told = publishing._slim(record)
    shown = pictures.unpacked(told["data"]["fault"])
    assert len(shown) <= pictures.MOST < 2 * len(shown) + 1
    step = -(-side // pictures.MOST)
    assert torch.equal(shown, fault.half().float()[::step, ::step])
    assert {**told, "data": None} == {**record, "data": None}
    assert publishing._slim(told) == told
    timing = {"data": {"seconds_per_update": {"esgd": 0.5}}}
    assert publishing._slim(timing) == timing


def test_a_task_more_joins_the_fight_of_the_same_terms(published, tmp_path):
    one, out, results = published
    shutil.copytree(results, tmp_path / "more")
    other = fought(replace(TERMS_OF_ONE, tasks=("decays-log",)), Arena(out))
    publish(other, out, tmp_path / "more")
    told = (tmp_path / "more" / "cosine.md").read_text()
    assert "### decays:" in told
    assert "### decays-log:" in told
    text = (tmp_path / "more" / one.terms.name / TERMS).read_text()
    assert Terms.of(text).tasks == ("decays", "decays-log")


def test_other_terms_do_not_go_where_a_fight_lies(published):
    one, out, results = published
    other = replace(one, terms=replace(one.terms, epochs=10))
    with pytest.raises(ValueError, match="other terms"):
        publish(other, out, results)
