"""The benchmark of mean_floor: its tables follow from records, and it runs small."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import flatness, mean_floor
from equilibrate.study.problems import BUILT_IN

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["mnist", "curves-like"])
def test_the_table_on_the_page_follows_from_its_records(name):
    lines = mean_floor.table(ROOT / "results/mean-floor" / name)
    assert "\n".join(lines) in (ROOT / "docs/momentum.md").read_text()


def few():
    """The small auto-encoder of 400 images."""
    whole = BUILT_IN["curves-like-14"](None)
    images = whole.cases[0][:400]
    return replace(whole, data=lambda: (images, images))


def test_every_arm_is_searched_alike_and_its_best_has_three_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(mean_floor, "EPOCHS", 1)
    monkeypatch.setattr(mean_floor, "RATES", 2)
    problem = few()
    mean_floor.train(problem, tmp_path, list(mean_floor.ARMS))
    for arm in mean_floor.ARMS:
        ends = dict(mean_floor.found(tmp_path, arm))
        assert sorted(ends) == mean_floor.rates(arm)
        best = min(ends, key=ends.get)
        for seed in mean_floor.SEEDS[1:]:
            ((lr, _),) = mean_floor.found(tmp_path, arm, seed)
            assert lr == best
    assert len(mean_floor.table(tmp_path)) == 2 + len(mean_floor.ARMS)


def test_flatness_is_looked_at_along_every_run(monkeypatch, capsys):
    monkeypatch.setattr(flatness, "BUILT_IN", {"curves-like-14": lambda folder: few()})
    monkeypatch.setattr(flatness, "STEPS", 2)
    monkeypatch.setattr("sys.argv", ["flatness", "--rates", "0.01", "--moments", "1", "2"])
    flatness.main()
    rows = capsys.readouterr().out.splitlines()[4:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(flatness.LOOKED_AT)
    assert rows[0].count("/ -") == 2
    assert rows[1].count("/ -") == 0
