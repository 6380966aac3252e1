"""The momentum study: equal searches, halving, other seeds, S16 and S17 from records alone."""

import json
import shutil
from dataclasses import replace
from functools import partial

import pytest

from equilibrate import cli
from equilibrate.paper import arm_search, figures, momentum, run, studies
from equilibrate.paper.arm_records import error_at
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS, QUICK_SETTINGS, momentum_arms
from equilibrate.paper.records import NotRecorded, Store
from equilibrate.study.conclude import conclude
from equilibrate.study.naming import canonical
from equilibrate.study.progress import Progress
from tests.paper.shrunken import MOMENTUM, PROBLEMS, shrink

ONE_TASK = replace(MOMENTUM, tasks=MOMENTUM.tasks[:1])
compute = partial(momentum.compute, problems=PROBLEMS)


def progress():
    return Progress("momentum", momentum.units(MOMENTUM), stream=None)


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    folder, going = tmp_path_factory.mktemp("momentum"), progress()
    return folder, compute(MOMENTUM, Store(folder), going), going


def test_the_progress_adds_up_to_the_work(computed):
    _, _, going = computed
    assert going.done == going.total


def test_records_hold_the_cut_trials_the_winners_and_their_seeds(computed):
    _, records, _ = computed
    trained = [record for record in records if "timing" not in record]
    assert {record["timing"] for record in records if "timing" in record} == {
        "mnist", "curves-like"
    }  # fmt: skip
    for task in MOMENTUM.tasks:
        mine = [record for record in trained if record["task"] == task.problem]
        assert len(mine) == len(MOMENTUM.arms) * (3 + MOMENTUM.seeds)
        for arm in momentum_arms(trained, task.problem).values():
            assert sorted(r["status"] for r in arm.searched) == ["cut", "cut", "finished"]
            early = {r["key"]: error_at(r, task.rungs[0]) for r in arm.searched}
            assert early[arm.best["key"]] == min(early.values())
            assert [record["seed"] for record in arm.seeds] == [0, 1]
            assert {record["curve"]["epoch"][-1] for record in arm.seeds} == {task.epochs}


def test_a_second_run_and_a_frozen_store_read_what_is_there(computed):
    folder, records, _ = computed
    assert compute(MOMENTUM, Store(folder), progress()) == records
    frozen = Store(folder, frozen=True)
    assert compute(MOMENTUM, frozen, progress()) == records
    with pytest.raises(NotRecorded):
        compute(replace(MOMENTUM, rates=2), frozen, progress())


def test_a_frozen_store_shows_a_task_without_the_others_seeds_and_times(computed, tmp_path):
    folder, _, _ = computed
    study = folder / "momentum-mnist" / "records.jsonl"
    lines = [line for line in study.read_text().splitlines() if '"epochs":3' in line]
    (tmp_path / "momentum-mnist").mkdir()
    (tmp_path / "momentum-mnist" / study.name).write_text("\n".join(lines) + "\n")
    records = compute(MOMENTUM, Store(tmp_path, frozen=True), progress())
    assert {record["task"] for record in records} == {"mnist"}
    arms = momentum_arms(records, "mnist")
    assert {(len(arm.seeds), arm.trained) for arm in arms.values()} == {(1, 3)}
    assert momentum.joint(MOMENTUM, records, {}) == []
    (table,) = momentum.describe(MOMENTUM, records).tables
    assert [row[-1] for row in table.rows] == ["-"] * 5
    momentum.draw(MOMENTUM, records)
    with pytest.raises(NotRecorded):
        compute(MOMENTUM, Store(tmp_path / "elsewhere", frozen=True), progress())


def test_a_second_round_goes_on_from_the_first_and_the_best_of_both_wins(computed, tmp_path):
    folder, records, _ = computed
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    both = replace(ONE_TASK, rounds=2)
    assert compute(both, Store(tmp_path, frozen=True), progress()) == [
        record for record in records if "mnist" in (record.get("task"), record.get("timing"))
    ]  # the first round alone, while there is no second
    going = Progress("momentum", momentum.units(both), stream=None)
    found = compute(both, Store(tmp_path), going)
    assert going.done == going.total
    arms = momentum_arms([r for r in found if "timing" not in r], "mnist")
    before = {r["key"] for r in records if r.get("task") == "mnist" and r["epochs"] == 3}
    for arm in arms.values():
        assert len(arm.searched) == 6
        assert sum(r["key"] in before for r in arm.searched) == 3
        finished = [r for r in arm.searched if r["status"] == "finished"]
        assert arm.best["final_error"] == min(r["final_error"] for r in finished)
        assert {canonical(r["settings"]) for r in arm.seeds} == {canonical(arm.best["settings"])}
    assert compute(both, Store(tmp_path, frozen=True), progress()) == found
    _drop_one_of_the_second_round(tmp_path / "momentum-mnist", before)
    partly = compute(both, Store(tmp_path, frozen=True), progress())
    searched = [r["key"] for r in partly if r.get("epochs") == 3]
    assert set(searched) == before  # a round that is not complete is left out, the first is shown
    rising = [row[0] for row in momentum.describe(both, found).tables[0].rows if "rising" in row[2]]
    won = [a.label for a in arms.values() if "sutskever" in a.best["settings"].values()]
    assert rising == won


def _drop_one_of_the_second_round(study, first):
    lines = (study / "records.jsonl").read_text().splitlines()
    second = [n for n, line in enumerate(lines) if '"epochs":3' in line and _key(line) not in first]
    del lines[second[-1]]
    (study / "records.jsonl").write_text("\n".join(lines) + "\n")


def _key(line):
    return json.loads(line)["key"]


def test_it_says_what_is_shown(computed):
    """The search alone or longer runs, one trial or a grid, and a second one where there is."""
    _, records, _ = computed
    trained = [record for record in records if "timing" not in record]
    rungs = {task.problem: task.rungs[-1] for task in MOMENTUM.tasks}
    search = [record for record in trained if record["epochs"] == rungs[record["task"]]]
    whole, partial = (momentum.describe(MOMENTUM, each) for each in (trained, search))
    assert "search alone" not in whole.caption
    assert "search alone" in partial.caption
    assert "three learning rates" in whole.notes[0]
    assert "second grid" not in whole.notes[0]


def test_it_draws_and_describes(computed, tmp_path):
    _, records, _ = computed
    momentum.draw(MOMENTUM, records).savefig(tmp_path / "figure.png")
    described = momentum.describe(MOMENTUM, records)
    assert [len(table.rows) for table in described.tables] == [5, 5]
    assert any("CURVES-like" in note for note in described.notes)
    rows = {row[0]: row for row in described.tables[0].rows}
    assert "beta1" in rows["Adam"][2]
    assert all(row[1] == "3 trials" for row in rows.values())
    assert "best of the search at 8 updates" in described.tables[0].header


def test_a_task_without_times_beside_one_with_them_says_so(computed):
    _, records, _ = computed
    known = [record for record in records if record.get("timing") != "curves-like"]
    *_, timed, untimed = momentum.draw(MOMENTUM, known).axes
    assert timed.get_lines()
    assert [text.get_text() for text in untimed.texts] == [
        "the time of an update is not recorded yet"
    ]


@pytest.fixture
def _stacked(monkeypatch):
    """Let a study train in one mixed stack, as it does on a GPU."""

    def train(*arguments, **options):
        return studies.train(*arguments, **{**options, "at_once": 64})

    monkeypatch.setattr(arm_search, "train", train)


@pytest.mark.usefixtures("_stacked")
def test_in_one_mixed_stack_the_study_finds_the_same_numbers(computed, tmp_path):
    _, records, _ = computed
    apart = {r["key"]: r for r in records if r.get("task") == "mnist" and r["epochs"] == 3}
    stacked = compute(ONE_TASK, Store(tmp_path), progress())
    mine = {r["key"]: r for r in stacked if "timing" not in r and r["epochs"] == 3}
    assert mine.keys() == apart.keys()
    assert all(record["mixed"] and record["together"] == 15 for record in mine.values())
    for key, record in mine.items():
        assert error_at(record, 1) == pytest.approx(error_at(apart[key], 1), rel=1e-3)


class _Stopping(Progress):
    """Stops a study as a signal does, after so much work."""

    def advance(self, *arguments, **options):
        super().advance(*arguments, **options)
        if self.done > 15 + 1:  # all trials to the first rung, and a little of the second
            raise KeyboardInterrupt


@pytest.mark.usefixtures("_stacked")
def test_a_search_that_is_concluded_goes_on_with_the_seeds_of_who_came_furthest(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        compute(ONE_TASK, Store(tmp_path), _Stopping("momentum", 100.0, stream=None))
    ended = conclude(tmp_path / "momentum-mnist")
    assert len(ended) == 5
    records = compute(ONE_TASK, Store(tmp_path), progress())
    arms = momentum_arms([r for r in records if "timing" not in r], "mnist")
    assert {arm.best["key"] for arm in arms.values()} == {record["key"] for record in ended}
    for arm in arms.values():
        assert [(r["seed"], r["status"]) for r in arm.seeds] == [(0, "finished"), (1, "finished")]
    assert compute(ONE_TASK, Store(tmp_path, frozen=True), progress()) == records
    momentum.draw(ONE_TASK, records)
    assert len(momentum.describe(ONE_TASK, records).tables[0].rows) == 5


# --- the command


@pytest.fixture
def _small(monkeypatch):
    monkeypatch.setattr(run, "FIGURES", dict(figures.FIGURES))
    monkeypatch.setattr(figures, "FIGURES", run.FIGURES)
    shrink()


def test_a_quick_run_computes_it_only_where_it_is_named():
    assert "momentum" not in run._possible(True, run.CPU)
    assert "momentum" in run._possible(False, run.Means(device="cuda"))
    quick = momentum.settings(True)
    assert momentum.units(quick) == 5 * (1 + 2)
    (only,) = momentum._rounds(quick)
    assert [len(own) for own in only.values()] == [1] * 5
    for arm, own in QUICK_SETTINGS.items():
        space = MOMENTUM_ARMS[arm].space
        assert space["lr"].low <= own["lr"] <= space["lr"].high
        assert own.keys() == space.keys()
    assert momentum.joint(quick, [], {}) == []


@pytest.mark.usefixtures("_small")
def test_one_task_is_computed_alone_and_a_figure_without_it_is_not_run(tmp_path, capsys):
    named = ["paper", "momentum", "figure4", "--records-only", "--out", str(tmp_path)]
    assert cli.main([*named, "--task", "mnist-linear"]) == 2
    said = capsys.readouterr().err
    assert "momentum: not run, its tasks are mnist, curves-like" in said
    assert "figure4: not run" in said
    assert "nothing to compute" in said
    assert not list(tmp_path.iterdir())
    assert cli.main([*named[:2], *named[3:], "--task", "curves-like"]) == 0
    found = {path.name for path in (tmp_path / "records").glob("momentum-*")}
    assert len(found) == 2  # the study and its times
    assert "momentum-curves-like" in found
