"""Figure 3: equal searches, records that redraw, sentences judged from records alone."""

import json
import math
import shutil
from dataclasses import replace
from functools import partial

import pytest

from equilibrate.paper import figure3, figure3_claims
from equilibrate.paper.arm_records import arms_of, error_at
from equilibrate.paper.arm_search import split
from equilibrate.paper.arms import ARMS, PUBLISHED
from equilibrate.paper.records import NotRecorded, Store
from equilibrate.study.files import StudyError
from equilibrate.study.naming import digest
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.progress import Progress
from equilibrate.study.space import LogUniform
from tests.paper.made_up import cut_short, falling, made_up
from tests.paper.shrunken import FIGURE3, PROBLEMS

compute = partial(figure3.compute, problems=PROBLEMS)


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figure3")
    progress = Progress("figure3", figure3.units(FIGURE3), stream=None)
    return folder, compute(FIGURE3, Store(folder), progress), progress


def test_every_arm_searches_one_decade_with_as_many_trials():
    assert all(isinstance(arm.space["lr"], LogUniform) for arm in ARMS.values())
    assert {round(arm.space["lr"].decades, 9) for arm in ARMS.values()} == {1.0}
    full = figure3.Settings()
    drawn = {arm: figure3._drawn(full, arm) for arm in ARMS}
    assert {len(settings) for settings in drawn.values()} == {8}
    assert all(task.arms == tuple(ARMS) for task in full.tasks)
    assert full.tasks[0].long_epochs * 300 == 750_000


@pytest.mark.parametrize("arm", PUBLISHED)
def test_published_settings_lie_in_the_range_of_the_search(arm):
    where = ARMS[arm].space["lr"]
    assert where.low <= PUBLISHED[arm]["lr"] <= where.high
    assert PUBLISHED[arm].keys() <= ARMS[arm].space.keys()


def test_the_progress_adds_up_to_the_work(computed):
    _, _, progress = computed
    assert progress.done == progress.total


def test_records_hold_search_seeds_and_longest_runs(computed):
    _, records, _ = computed
    trained = [record for record in records if "timing" not in record]
    for task in FIGURE3.tasks:
        mine = [record for record in trained if record["task"] == task.problem]
        long = task.long_epochs > task.epochs
        carried = 2 * long  # the winner, and its first seed more: whole, and up to the search's end
        assert len(mine) == len(task.arms) * (FIGURE3.trials + FIGURE3.seeds - 1 + carried)
        for arm in arms_of(trained, task.problem).values():
            assert [record["seed"] for record in arm.seeds] == list(range(FIGURE3.seeds))
            assert arm.longest["epochs"] == task.long_epochs
            assert arm.best["final_error"] == min(r["final_error"] for r in arm.searched)


def test_a_second_run_and_a_frozen_store_read_what_is_there(computed):
    folder, records, _ = computed
    progress = Progress("figure3", figure3.units(FIGURE3), stream=None)
    assert compute(FIGURE3, Store(folder), progress) == records
    without_data = {name: lambda folder, name=name: _no_data(name) for name in PROBLEMS}
    frozen = Store(folder, frozen=True)
    assert figure3.compute(FIGURE3, frozen, progress, without_data) == records
    with pytest.raises(NotRecorded):
        compute(replace(FIGURE3, trials=3), frozen, progress)


def test_a_frozen_store_shows_the_search_before_seeds_and_times(computed, tmp_path):
    folder, _, _ = computed
    for study in folder.glob("figure3-*/records.jsonl"):
        lines = [line for line in study.read_text().splitlines() if '"seed":0' in line]
        (tmp_path / study.parent.name).mkdir()
        (tmp_path / study.parent.name / study.name).write_text("\n".join(lines) + "\n")
    progress = Progress("figure3", figure3.units(FIGURE3), stream=None)
    records = compute(FIGURE3, Store(tmp_path, frozen=True), progress)
    assert not [record for record in records if "timing" in record]
    for task in FIGURE3.tasks:
        for arm in arms_of(records, task.problem).values():
            assert len(arm.seeds) == 1
    assert figure3.describe(FIGURE3, records).tables
    figure3.draw(FIGURE3, records)


def test_a_long_run_that_was_cut_counts_as_far_as_it_came():
    records = _study(AS_SAID)
    (longest,) = (r for r in records if r["method"] == "esgd" and r["epochs"] == 2500)
    kept = cut_short(longest, 5)
    arm = arms_of(records, "mnist")["esgd"]
    assert (arm.trained, arm.last) == (kept["epoch"][-1], kept["error"][-1])
    assert arm.best["epochs"] == 1000


def _stored(folder, keep):
    """Keep those of a folder's records that are asked for."""
    for path in folder.glob("figure3-*/records.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines if keep(line)))


def _cut(record):
    cut = dict(record)
    cut_short(cut, 1)
    return cut


def _sealed(record):
    content = {name: value for name, value in record.items() if name != "checksum"}
    return {**content, "checksum": digest(content)}


def test_of_two_long_runs_the_one_that_came_further_is_shown(computed):
    _, records, _ = computed
    long = [r for r in records if r.get("task") == "mnist" and r["epochs"] == 3]
    assert [r["seed"] for r in long if r["method"] == "esgd"] == [0, 1]
    arm = arms_of([r for r in records if "timing" not in r], "mnist")["esgd"]
    assert arm.longest["seed"] == 0
    cut = [_cut(r) if r in long and r["seed"] == 0 else r for r in records]
    arm = arms_of([r for r in cut if "timing" not in r], "mnist")["esgd"]
    assert (arm.longest["seed"], arm.trained) == (1, 3)
    assert [record["seed"] for record in arm.seeds] == [0, 1]
    assert {record["epochs"] for record in arm.seeds} == {2}


def test_where_no_seed_was_carried_on_the_shorter_run_is_read(computed, tmp_path):
    folder, records, _ = computed
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    short = replace(FIGURE3, tasks=tuple(replace(t, long_epochs=t.epochs) for t in FIGURE3.tasks))
    progress = Progress("figure3", figure3.units(short), stream=None)
    compute(short, Store(tmp_path), progress)  # seeds as long as the search
    carried = {r["key"] for r in records if r.get("seed") and r["epochs"] == 3}
    assert carried
    _stored(tmp_path, lambda line: line["key"] not in carried)
    found, _ = split(compute(FIGURE3, Store(tmp_path, frozen=True), progress))
    for arm in arms_of(found, "mnist").values():
        assert [record["seed"] for record in arm.seeds] == [0, 1]
        assert arm.longest["seed"] == 0


def test_a_seed_that_was_ended_early_takes_no_ones_place(computed, tmp_path):
    """Of all arms the shorter runs count then: arms are compared at the same seeds."""
    folder, records, _ = computed
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    short = replace(FIGURE3, tasks=tuple(replace(t, long_epochs=t.epochs) for t in FIGURE3.tasks))
    progress = Progress("figure3", figure3.units(short), stream=None)
    compute(short, Store(tmp_path), progress)
    long = [r for r in records if r.get("seed") and r["epochs"] == 3]
    ended = {r["key"] for r in long if r["method"] == "esgd"}
    path = tmp_path / "figure3-mnist" / "records.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    early = [_sealed(_cut(_cut(r))) if r["key"] in ended else r for r in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in early))
    for store in (Store(tmp_path, frozen=True), Store(tmp_path, timed=False)):
        found, _ = split(compute(FIGURE3, store, progress))
        for arm in arms_of(found, "mnist").values():
            assert [record["seed"] for record in arm.seeds] == [0, 1]
            assert all(record["status"] == "finished" for record in arm.seeds)
            assert [record["seed"] for record in arm.long] == [0]


def _no_data(name):
    def data():
        raise AssertionError("redrawing must not read data")

    return replace(PROBLEMS[name](None), data=data)


def test_it_draws_and_describes(computed, tmp_path):
    _, records, _ = computed
    figure3.draw(FIGURE3, records).savefig(tmp_path / "figure.png")
    described = figure3.describe(FIGURE3, records)
    assert [len(table.rows) for table in described.tables] == [4, 5]
    assert any("CURVES-like" in note for note in described.notes)


def test_the_full_figure_refuses_a_cpu(tmp_path):
    settings = replace(FIGURE3, precision="tf32")
    with pytest.raises(StudyError, match="--device cuda"):
        compute(settings, Store(tmp_path), Progress("figure3", 1.0, stream=None))


def test_the_built_in_tasks_exist():
    for settings in (figure3.settings(True), figure3.settings(False)):
        assert {task.problem for task in settings.tasks} <= BUILT_IN.keys()


def _record(task, arm, errors, *others, **settings):
    return made_up(ARMS, task, arm, errors, *others, **{**PUBLISHED.get(arm, {}), **settings})


def _study(finals, task="mnist", spread=0.02):
    """Records of arms that fall to given errors, three seeds and a long run each."""
    records = []
    for arm, final in finals.items():
        for seed in range(3):
            records.append(_record(task, arm, falling(final * (1 + spread * seed)), seed))
        records.append(_record(task, arm, falling(0.8 * final, 51), epochs=2500))
    return records


AS_SAID = {"sgd": 2.4, "rmsprop": 1.8, "jacobi": 1.7, "esgd-warm": 1.0, "esgd": 1.05}
ONLY_SHIPPED = AS_SAID | {"esgd-warm": 2.0}
BEHIND = AS_SAID | {"esgd-warm": 2.0, "esgd": 2.0}


@pytest.mark.parametrize(
    ("finals", "verdict"),
    [
        (AS_SAID, "holds"),
        (ONLY_SHIPPED, "holds with a correction"),
        (BEHIND, "does not hold"),
        (AS_SAID | {"esgd-warm": 1.69, "esgd": 1.69}, "does not hold"),  # the seeds overlap
    ],
)
def test_s6_is_judged_by_all_seeds_and_by_which_esgd(finals, verdict):
    judged = {j.claim: j for j in figure3_claims.claims(_study(finals))}
    assert judged["S6"].verdict == verdict


@pytest.mark.parametrize(
    ("claim", "finals", "verdict"),
    [
        ("S8", AS_SAID, "holds"),
        ("S8", AS_SAID | {"esgd-warm": 1.2, "esgd": 1.2}, "does not hold"),
        ("S9", AS_SAID, "holds"),
        ("S9", AS_SAID | {"jacobi": 3.0}, "does not hold"),
        ("S10", AS_SAID | {"esgd-warm": 2.39, "esgd": 2.39}, "does not hold"),
    ],
)
def test_sentences_about_mnist(claim, finals, verdict):
    judged = {j.claim: j for j in figure3_claims.claims(_study(finals))}
    assert judged[claim].verdict == verdict


def test_s10_tells_the_time_beside_the_epochs_it_is_judged_by():
    seconds = {"sgd": 3.0, "esgd": 6.0}  # of the others no time was measured
    judged = figure3_claims.claims(_study(AS_SAID), {"mnist": seconds, "curves-like": {"sgd": 1.0}})
    (told,) = (j for j in judged if j.claim == "S10")
    assert told.numbers["esgd, in time"] == told.numbers["esgd"] / 2
    assert "esgd-warm, in time" not in told.numbers
    assert f"in less time (not judged) by {told.numbers['esgd'] / 2:.1f} (" in told.ours
    (untimed,) = (j for j in figure3_claims.claims(_study(AS_SAID)) if j.claim == "S10")
    assert (untimed.verdict, "time" in untimed.ours) == (told.verdict, False)


def test_one_seed_is_not_judged_where_seeds_decide():
    records = [r for r in [*_study(AS_SAID), *_study(AS_SAID, "curves-like")] if r["seed"] == 0]
    judged = {j.claim: j for j in figure3_claims.claims(records)}
    assert judged["S6"].verdict == judged["S24"].verdict == "not yet run"
    assert "one seed" in judged["S6"].ours
    assert judged["S9"].verdict == "holds"


def test_s11_and_s24_need_both_tasks():
    mnist = _study(AS_SAID)
    assert not {"S11", "S24"} & {j.claim for j in figure3_claims.claims(mnist)}
    smaller = AS_SAID | {"esgd-warm": 1.6, "esgd": 1.6}
    both = [*mnist, *_study(smaller, "curves-like")]
    judged = {j.claim: j for j in figure3_claims.claims(both)}
    assert (judged["S11"].verdict, judged["S24"].verdict) == ("holds", "holds")
    assert "not CURVES" in judged["S11"].ours
    behind = [*mnist, *_study(BEHIND, "curves-like")]
    judged = {j.claim: j for j in figure3_claims.claims(behind)}
    assert (judged["S11"].verdict, judged["S24"].verdict) == ("does not hold", "does not hold")
    level = AS_SAID | {"sgd": 2.2, "esgd-warm": 1.81, "esgd": 1.81}  # seeds overlap
    judged = {j.claim: j for j in figure3_claims.claims([*mnist, *_study(level, "curves-like")])}
    assert judged["S24"].verdict == "does not hold"  # SGD is not clearly behind
    level["sgd"] = 2.9
    judged = {j.claim: j for j in figure3_claims.claims([*mnist, *_study(level, "curves-like")])}
    assert judged["S24"].verdict == "holds with a correction"


def test_s25_names_the_winner_at_an_edge():
    records = [*_study(AS_SAID), *_study({"esgd": 0.5})]
    for record in records[-4:]:
        record["settings"]["lr"] = 0.0995
    judged = {j.claim: j for j in figure3_claims.claims(records)}
    assert judged["S25"].verdict == "does not hold"
    assert "upper edge" in judged["S25"].ours


def test_a_diverged_run_has_no_error_after_its_end():
    record = _record("mnist", "esgd", falling(1.0), status="diverged")
    assert error_at(record) == math.inf
    assert error_at(record, 500) < 60
