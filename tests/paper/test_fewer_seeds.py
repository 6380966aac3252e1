"""--seeds: winners with fewer seeds first; a later run trains the others and nothing again."""

from dataclasses import replace

import pytest

from equilibrate import cli
from equilibrate.paper import figures, run
from equilibrate.paper.records import Store
from equilibrate.study.naming import canonical
from equilibrate.study.progress import Progress
from tests.paper.shrunken import FIGURE3, MOMENTUM, PROBLEMS, TRAINING, shrink

ASKED = {
    "figure3": replace(FIGURE3, tasks=FIGURE3.tasks[1:], trials=1, seeds=3),
    "momentum": replace(MOMENTUM, tasks=MOMENTUM.tasks[1:], seeds=3),
}


def computed(name, folder, seeds):
    """Return the trained records of a figure, by what they are."""
    figure = replace(figures.FIGURES[name], settings=lambda quick: ASKED[name])
    settings = run._part(figure, quick=False, means=run.Means(seeds=seeds))
    module, _ = TRAINING[name]
    going = Progress(name, module.units(settings), stream=None)
    found = module.compute(settings, Store(folder, timed=False), going, PROBLEMS)
    return {_what(r): r for r in found if "timing" not in r}


def _what(record):
    return canonical([record[part] for part in ("method", "settings", "seed", "epochs")])


@pytest.mark.parametrize("name", ASKED)
def test_the_other_seeds_come_later_and_leave_the_first_as_they_are(name, tmp_path):
    first, all_of_them = computed(name, tmp_path, 1), computed(name, tmp_path, 3)
    assert {record["seed"] for record in first.values()} == {0}
    assert {record["seed"] for record in all_of_them.values()} == {0, 1, 2}
    assert {what: all_of_them[what] for what in first} == first


def test_more_seeds_than_a_figure_has_are_those_it_has():
    for name, figure in figures.FIGURES.items():
        if figure.adds_seeds:
            part = run._part(figure, quick=False, means=run.Means(seeds=99))
            assert part == figure.settings(False), name


def test_figures_whose_seeds_belong_together_refuse(tmp_path, capsys):
    assert cli.main(["paper", "figure4", "--seeds", "1", "--out", str(tmp_path / "out")]) == 2
    assert "--seeds is not for figure4, but for figure3, momentum" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("part", [["--seeds", "1"], ["--task", "curves-like"]])
def test_a_run_of_a_part_draws_all_that_is_recorded(part, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "FIGURES", dict(figures.FIGURES))
    monkeypatch.setattr(figures, "FIGURES", run.FIGURES)
    shrink()
    command = ["paper", "momentum", "--untimed", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    whole = (tmp_path / "momentum.svg").read_text().count("<path")
    assert cli.main([*command, *part]) == 0
    assert "median over 2 seeds" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "momentum.svg").read_text().count("<path") == whole
