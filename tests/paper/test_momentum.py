"""The momentum study: equal searches, halving, other seeds, S16 and S17 from records alone."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from equilibrate import cli
from equilibrate.paper import figures, momentum, momentum_claims, run
from equilibrate.paper.arm_records import arms_of, error_at
from equilibrate.paper.arms import ARMS
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS, PLAIN, QUICK_SETTINGS, grid
from equilibrate.paper.records import NotRecorded, Store
from equilibrate.study.alone import Alone
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.progress import Progress
from equilibrate.study.stack import Stack
from equilibrate.study.stacked_rules import why_not_stacked
from tests.paper.made_up import cut_short, falling, made_up
from tests.paper.shrunken import MOMENTUM, PROBLEMS, shrink
from tests.study.stacks import CPU, dense, parted, row_of, trials, vector_of

compute = partial(momentum.compute, problems=PROBLEMS)


def progress():
    return Progress("momentum", momentum.units(MOMENTUM), stream=None)


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    folder, going = tmp_path_factory.mktemp("momentum"), progress()
    return folder, compute(MOMENTUM, Store(folder), going), going


# --- what is searched


def test_every_arm_has_nine_trials_over_one_decade_and_three_momenta():
    for arm in MOMENTUM_ARMS.values():
        assert arm.space["lr"].decades == pytest.approx(1)
        settings = grid(arm, 3)
        rates = [own["lr"] for own in settings]
        momenta = [own.get("momentum") or own["betas"][0] for own in settings]
        assert len(set(zip(rates, momenta, strict=True))) == 9
        assert len(set(rates)) == len(set(momenta)) == 3
        assert arm.space["lr"].low < min(rates)
        assert max(rates) < arm.space["lr"].high
        parts = [math.log10(rate / arm.space["lr"].low) for rate in sorted(set(rates))]
        assert parts == pytest.approx([1 / 6, 1 / 2, 5 / 6], abs=1e-3)


def test_esgd_is_as_shipped_but_for_what_is_searched():
    esgd = MOMENTUM_ARMS["esgd"]
    assert {*esgd.space, *esgd.fixed} == {"lr", "momentum", "nesterov", "momentum_schedule"}


def test_every_task_ends_at_750_000_updates_and_first_cuts_at_30_000():
    per_epoch = {"mnist": 300, "curves-like": 100}
    for task in momentum.Settings().tasks:
        updates = [rung * per_epoch[task.problem.removesuffix("-linear")] for rung in task.rungs]
        assert updates == [30_000, 120_000, 750_000]
        assert all(rung % task.every == 0 for rung in task.rungs)
        assert task.problem in BUILT_IN


def test_the_work_of_a_task_is_known_beforehand():
    full = momentum.Settings()
    search = 5 * (9 * 100 + 3 * 300 + 1 * 2100)
    seeds = 5 * 2 * 2500
    assert momentum.units(replace(full, tasks=full.tasks[:1])) == search + seeds == 44_500


# --- that a mixed stack trains it


def _searched(epochs):
    return [
        each
        for name, arm in MOMENTUM_ARMS.items()
        for each in trials(name, grid(arm, 1), epochs=epochs)
    ]


def test_all_arms_in_one_mixed_stack_are_the_optimizers_alone():
    """Over the update at which the momentum falls: 8 an epoch, so that 24 come before the end."""
    problem, listed = dense(), _searched(epochs=128)
    stack = Stack(problem, MOMENTUM_ARMS, listed, CPU)
    assert len(stack.blocks) == len(MOMENTUM_ARMS)
    stack.advance(45)
    for row, trial in enumerate(listed):
        assert why_not_stacked(MOMENTUM_ARMS[trial.method].optimizer, trial.settings) is None
        alone = Alone(problem, MOMENTUM_ARMS[trial.method], [trial], CPU)
        alone.advance(24)
        before = alone.optimizer.param_groups[0].get("momentum")
        alone.advance(21)
        assert parted(row_of(stack, row), vector_of(alone)) < 1e-9
        if trial.method != "adam":
            ending = trial.settings["momentum_schedule"] == "ending"
            assert before == (trial.settings["momentum"] if ending else 0.5)
            assert alone.optimizer.param_groups[0]["momentum"] == (0.9 if ending else 0.5)


def test_a_mixed_stack_goes_on_with_one_trial_an_arm():
    problem, listed = dense(), _searched(epochs=128)
    whole, cut = (Stack(problem, MOMENTUM_ARMS, listed, CPU) for _ in range(2))
    kept = list(range(1, len(listed), 3))
    for stack in (whole, cut):
        stack.advance(22)
    cut.keep(kept)
    for stack in (whole, cut):
        stack.advance(8)
    for place, row in enumerate(kept):
        torch.testing.assert_close(row_of(cut, place), row_of(whole, row), rtol=0, atol=1e-9)


# --- what is recorded


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
        assert len(mine) == len(MOMENTUM.arms) * (3 + MOMENTUM.seeds - 1)
        for arm in arms_of(trained, task.problem, MOMENTUM_ARMS).values():
            assert sorted(r["status"] for r in arm.searched) == ["cut", "cut", "finished"]
            early = {r["key"]: error_at(r, task.rungs[0]) for r in arm.searched}
            assert early[arm.best["key"]] == min(early.values())
            assert [record["seed"] for record in arm.seeds] == [0, 1]
            assert {record["curve"]["epoch"][-1] for record in arm.seeds} == {task.rungs[-1]}


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
    lines = [line for line in study.read_text().splitlines() if '"seed":0' in line]
    (tmp_path / "momentum-mnist").mkdir()
    (tmp_path / "momentum-mnist" / study.name).write_text("\n".join(lines) + "\n")
    records = compute(MOMENTUM, Store(tmp_path, frozen=True), progress())
    assert {record["task"] for record in records} == {"mnist"}
    arms = arms_of(records, "mnist", MOMENTUM_ARMS)
    assert {len(arm.seeds) for arm in arms.values()} == {1}
    (table,) = momentum.describe(MOMENTUM, records).tables
    assert [row[-1] for row in table.rows] == ["-"] * 5
    momentum.draw(MOMENTUM, records)
    with pytest.raises(NotRecorded):
        compute(MOMENTUM, Store(tmp_path / "elsewhere", frozen=True), progress())


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


def test_a_search_that_was_ended_early_is_won_by_who_came_furthest():
    records = _with(AS_SAID)
    for record in records:
        if record["status"] == "finished":
            cut_short(record, 10)
        else:
            record["curve"]["error"][-1] = 0.01  # lower, but at the first rung
    arms = arms_of(records, "mnist", MOMENTUM_ARMS)
    assert {(arm.best["status"], arm.trained) for arm in arms.values()} == {("cut", 2250)}
    assert all(row[4].endswith("675,000 updates (cut)") for row in _rows(records))
    diverged = [{**record, "status": "diverged"} for record in records]
    assert arms_of(diverged, "mnist", MOMENTUM_ARMS) == {}


def _rows(records):
    return momentum.describe(momentum.Settings(), records).tables[0].rows


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
    assert momentum.units(quick) == 5 * 2
    assert all(len(momentum._settings_of(quick, arm)) == 1 for arm in quick.arms)
    for arm, own in QUICK_SETTINGS.items():
        space = MOMENTUM_ARMS[arm].space
        assert space["lr"].low <= own["lr"] <= space["lr"].high
        assert own.keys() == space.keys()
    assert momentum.joint(quick, [], {}) == []


@pytest.mark.usefixtures("_small")
def test_one_task_is_computed_alone_and_a_figure_without_it_is_not_run(tmp_path, capsys):
    named = ["paper", "momentum", "figure4", "--records-only", "--out", str(tmp_path)]
    assert cli.main([*named, "--task", "mnist-linear"]) == 0
    said = capsys.readouterr().err
    assert "momentum: not run, its tasks are mnist, curves-like" in said
    assert "figure4: not run" in said
    assert not (tmp_path / "records").exists()
    assert cli.main([*named[:2], *named[3:], "--task", "curves-like"]) == 0
    found = {path.name for path in (tmp_path / "records").glob("momentum-*")}
    assert len(found) == 2  # the study and its times
    assert "momentum-curves-like" in found


# --- the sentences


FIRST_RUNGS = {"mnist": 100, "curves-like": 300}
AS_SAID = {"nag": 0.75, "rmsprop": 0.9, "adam": 0.8, "jacobi": 1.2, "esgd": 0.62}
WITHOUT = {"sgd": 1.6, "rmsprop": 1.1, "jacobi": 1.6, "esgd": 1.2}


def _with(finals, task="mnist", spread=0.02):
    """A winner at three seeds, and a trial that was cut at the first rung, of every arm."""
    records = []
    for arm, final in finals.items():
        own = {"momentum": 0.9}
        for seed in range(3):
            errors = falling(final * (1 + spread * seed), 101)
            records.append(made_up(MOMENTUM_ARMS, task, arm, errors, seed, 2500, **own))
        tried = made_up(MOMENTUM_ARMS, task, arm, falling(9.0, 101), 0, 2500, lr=0.01, **own)
        cut_short(tried, 96)
        records.append(tried)
    return records


def _without(finals, task="mnist"):
    """Figure 3's winners: three seeds of 1,000 epochs, the first of them on to 2,500."""
    records = []
    for arm, final in finals.items():
        whole = falling(final, 101)
        short = [made_up(ARMS, task, arm, whole[:41], seed, 1000) for seed in range(3)]
        records += [*short, made_up(ARMS, task, arm, whole, 0, 2500)]
    return records


def _judged(records, plain=()):
    return {j.claim: j for j in momentum_claims.claims(records, plain, FIRST_RUNGS)}


def test_nothing_is_judged_while_records_are_missing():
    assert _judged([]) == {}
    assert _judged(_with({"esgd": 0.5, "adam": 0.8, "nag": 0.9})) == {}
    assert _judged(_with(AS_SAID, "curves-like")) == {}
    assert _judged(_with({"esgd": 0.5}), _without(WITHOUT)) == {}
    assert _judged([], _without(WITHOUT)) == {}


@pytest.mark.parametrize(
    ("finals", "verdict"),
    [
        (AS_SAID, "holds"),
        (AS_SAID | {"esgd": 0.71, "adam": 0.9, "nag": 0.9}, "holds"),
        (AS_SAID | {"esgd": 0.70, "adam": 0.6}, "holds with a correction"),
        (AS_SAID | {"esgd": 0.70, "nag": 0.71}, "holds with a correction"),  # the seeds overlap
        (AS_SAID | {"esgd": 0.8, "adam": 0.9, "nag": 0.9}, "does not hold"),  # first, too high
        (AS_SAID | {"esgd": 0.62, "jacobi": 0.5}, "holds"),  # not one of the three rivals
    ],
)
def test_s17_asks_for_the_published_record_and_for_the_lead(finals, verdict):
    judged = _judged(_with(finals))["S17"]
    assert judged.verdict == verdict
    assert "3 seed(s)" in judged.evidence
    assert "750,000 updates" in judged.ours
    assert "aim 0.60 not reached" in judged.ours


def test_s17_asks_for_the_lead_on_every_task():
    ahead = [*_with(AS_SAID), *_with(AS_SAID, "curves-like")]
    assert _judged(ahead)["S17"].verdict == "holds"
    behind = [*_with(AS_SAID), *_with(AS_SAID | {"adam": 0.5}, "curves-like")]
    judged = _judged(behind)["S17"]
    assert judged.verdict == "holds with a correction"
    assert "as good on CURVES-like (not CURVES)" in judged.ours


def test_s17_tells_the_aim_and_the_first_rung():
    judged = _judged(_with(AS_SAID | {"esgd": 0.55}))["S17"]
    assert "aim 0.60 reached" in judged.ours
    assert "at 30,000 updates" in judged.ours
    assert "not met" in judged.ours  # 9 was the best there
    assert judged.numbers["mnist"]["esgd"] == pytest.approx(0.561)


def test_s17_compares_runs_that_were_cut_at_the_last_epoch_of_all():
    records = _with(AS_SAID | {"esgd": 0.70, "nag": 0.60})
    for record in records:
        if record["method"] == "nag" and record["status"] == "finished":
            cut_short(record, 20)  # above ESGD's end by then, and below what ESGD had by then
    nags, esgds = (arms_of(records, "mnist", MOMENTUM_ARMS)[name] for name in ("nag", "esgd"))
    assert nags.error().median > esgds.error().median
    judged = _judged(records)["S17"]
    assert "600,000 updates" in judged.ours
    assert judged.verdict == "holds with a correction"


@pytest.mark.parametrize(
    ("rmsprop", "verdict"),
    [
        ({"mnist": 1.2, "curves-like": 1.2}, "holds"),
        ({"mnist": 0.9, "curves-like": 1.2}, "holds with a correction"),
        ({"mnist": 0.9, "curves-like": 0.9}, "holds with a correction"),  # the others gain more
        ({"mnist": 0.5, "curves-like": 0.5}, "does not hold"),
    ],
)
def test_s16_sets_rmsprop_with_momentum_beside_figure_3s_without(rmsprop, verdict):
    mixed = [
        r for task, final in rmsprop.items() for r in _with(AS_SAID | {"rmsprop": final}, task)
    ]
    plain = [r for task in rmsprop for r in _without(WITHOUT, task)]
    judged = _judged(mixed, plain)["S16"]
    assert judged.verdict == verdict
    assert "2500 epochs" in judged.ours
    assert judged.numbers["mnist"]["rmsprop"] == pytest.approx(1.1 / rmsprop["mnist"])
    assert judged.numbers["mnist"].keys() == PLAIN.keys()


def test_s16_is_judged_at_the_last_epoch_that_both_reached():
    plain = _without(WITHOUT)
    for record in plain:
        if record["epochs"] == 2500:
            cut_short(record, 20)
    judged = _judged(_with(AS_SAID), plain)["S16"]
    assert "2000 epochs" in judged.ours
    expected = falling(1.1, 101)[80] / falling(0.9, 101)[80]
    assert judged.numbers["mnist"]["rmsprop"] == pytest.approx(expected)
