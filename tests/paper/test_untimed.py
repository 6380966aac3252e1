"""--untimed: a run that trains and records, and leaves the times of an update for a later one."""

from dataclasses import replace
from functools import partial

import pytest

from equilibrate import cli
from equilibrate.paper import arm_timing, figures, robustness_timing, run, studies
from equilibrate.paper.records import Store
from equilibrate.study.progress import Progress
from tests.paper.shrunken import FIGURE3, MOMENTUM, PROBLEMS, ROBUSTNESS, TRAINING, shrink

SMALL = {
    "figure3": replace(FIGURE3, tasks=FIGURE3.tasks[1:], trials=1, seeds=1),
    "momentum": replace(MOMENTUM, tasks=MOMENTUM.tasks[1:], seeds=1),
    "robustness": ROBUSTNESS,
}


def refuse(*_, **__):
    raise AssertionError("measured or trained where nothing was missing or asked for")


def without_timing(patch):
    patch.setattr(arm_timing, "_measure", refuse)
    patch.setattr(robustness_timing, "measure", refuse)


def without_training(patch):
    patch.setattr(studies, "Alone", refuse)
    patch.setattr(studies, "Stack", refuse)


def computed(name, folder, *, timed):
    """Return the figure's records, timings and the rest apart, and the progress."""
    module, _ = TRAINING[name]
    going = Progress(name, module.units(SMALL[name]), stream=None)
    found = module.compute(SMALL[name], Store(folder, timed=timed), going, PROBLEMS)
    trained = [record for record in found if "timing" not in record]
    return trained, [record for record in found if "timing" in record], going


@pytest.fixture(params=SMALL, scope="module")
def untimed(request, tmp_path_factory):
    """An untimed run that would raise if it timed, then a timed one that would if it trained."""
    folder, name = tmp_path_factory.mktemp(request.param), request.param
    with pytest.MonkeyPatch.context() as patch:
        without_timing(patch)
        first = computed(name, folder, timed=False)
    files = {path.name for path in folder.iterdir()}
    with pytest.MonkeyPatch.context() as patch:
        without_training(patch)
        second = computed(name, folder, timed=True)
    return name, folder, files, first, second


def test_an_untimed_run_does_all_but_the_times(untimed):
    _, _, files, (trained, timings, going), _ = untimed
    assert trained
    assert not timings
    assert not [file for file in files if "timing" in file]
    assert going.done == going.total


def test_a_later_run_measures_the_times_and_trains_nothing(untimed):
    name, folder, files, (trained, _, _), (found, timings, _) = untimed
    assert found == trained
    assert len(timings) == 1
    (added,) = {path.name for path in folder.iterdir()} - files
    assert added.startswith(f"{name}-timing-")


def test_an_untimed_run_uses_the_times_that_are_there(untimed, monkeypatch):
    name, folder, _, _, (trained, timings, _) = untimed
    without_timing(monkeypatch)
    without_training(monkeypatch)
    assert computed(name, folder, timed=False)[:2] == (trained, timings)


def _of_arms(module, chosen, records):
    """Whether curves against time are drawn, and the table tells the time of an update."""
    _, *below = module.draw(chosen, records).axes
    (table,) = module.describe(chosen, records).tables
    against_time = [panel for panel in below if panel.get_lines()]
    assert against_time == below  # where no time is known there is no panel for it
    return bool(below), "-" not in {row[-1] for row in table.rows}


def _of_costs(module, chosen, records):
    """Whether the costs of an update are written into the picture, and judged."""
    written = [
        text.get_text() for panel in module.draw(chosen, records).axes for text in panel.texts
    ]
    verdicts = {judged.claim: judged.verdict for judged in module.claims(chosen, records)}
    return "time of an update / SGD's" in written, verdicts["S14"] != "not yet run"


SHOWN = {"figure3": _of_arms, "momentum": _of_arms, "robustness": _of_costs}


def test_times_are_drawn_and_told_once_they_are_measured(untimed):
    name, _, _, (trained, _, _), (_, timings, _) = untimed
    shown = partial(SHOWN[name], TRAINING[name][0], SMALL[name])
    assert shown(trained) == (False, False)
    assert shown([*trained, *timings]) == (True, True)


def _time_arms(store):
    return arm_timing.timing(store, "figure3-timing", None, "mnist", {}, "float32", 1)


def _time_costs(store):
    return robustness_timing.timing(store, None, "mnist", "float32", ROBUSTNESS.timing)


@pytest.mark.parametrize(
    ("timed", "figure"),
    [(_time_arms, "figure3"), (_time_costs, "robustness")],
    ids=["figure3", "robustness"],
)
def test_what_takes_time_after_the_bar_is_told_and_what_is_read_is_not(
    timed, figure, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(arm_timing, "_measure", lambda *_: {})
    monkeypatch.setattr(robustness_timing, "measure", lambda *_: {})
    timed(Store(tmp_path))
    told = f"{figure}: timing an update of each method (mnist)"
    assert capsys.readouterr().err.strip() == told
    timed(Store(tmp_path))
    timed(Store(tmp_path, frozen=True))
    assert capsys.readouterr().err == ""


# --- the command

UNTIMED = 'us per update"><div>-</div>'  # a cell of the report


@pytest.fixture
def _small(monkeypatch):
    monkeypatch.setattr(run, "FIGURES", dict(figures.FIGURES))
    monkeypatch.setattr(figures, "FIGURES", run.FIGURES)
    shrink()
    for name, settings in SMALL.items():
        own = replace(run.FIGURES[name], settings=lambda quick, s=settings: s)
        monkeypatch.setitem(run.FIGURES, name, own)


@pytest.mark.usefixtures("_small")
def test_the_command_writes_a_report_without_times_and_later_one_with_them(tmp_path):
    command = ["paper", "momentum", "--out", str(tmp_path)]
    with pytest.MonkeyPatch.context() as patch:
        without_timing(patch)
        assert cli.main([*command, "--untimed"]) == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count(UNTIMED) == len(MOMENTUM.arms)
    with pytest.MonkeyPatch.context() as patch:
        without_training(patch)
        assert cli.main(command) == 0
    assert UNTIMED not in (tmp_path / "report.html").read_text()
