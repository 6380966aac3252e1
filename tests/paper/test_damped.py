"""The momentum study with more damping: equal numbers of settings, chosen at the end, and S17."""

import json
from dataclasses import replace
from functools import partial

import pytest

from equilibrate.paper import arm_search, momentum, momentum_claims
from equilibrate.paper.damped_arms import DAMPED
from equilibrate.paper.figures import FIGURES
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS, momentum_arms
from equilibrate.paper.records import NotRecorded, Store
from equilibrate.study.naming import canonical
from equilibrate.study.progress import Progress
from equilibrate.study.stacked_rules import why_not_stacked
from tests.paper.made_up import falling, made_up
from tests.paper.shrunken import MOMENTUM, PROBLEMS
from tests.paper.test_momentum_claims import AS_SAID, FIRST_RUNGS, _with

SMALL = replace(MOMENTUM, study="damped", tasks=MOMENTUM.tasks[1:])
(TASK,) = SMALL.tasks


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damped")
    progress = Progress("damped", momentum.units(SMALL), stream=None)
    return folder, momentum.compute(SMALL, Store(folder), progress, PROBLEMS), progress


@pytest.mark.parametrize("task", DAMPED)
def test_every_arm_has_as_many_settings_that_train_in_a_stack(task):
    for each in DAMPED[task]:
        assert list(each) == list(MOMENTUM_ARMS)
        assert len({len(listed) for listed in each.values()}) == 1
    for name, method in MOMENTUM_ARMS.items():
        listed = [own for each in DAMPED[task] for own in each[name]]
        assert len({tuple(sorted(own.items())) for own in listed}) == len(listed)
        assert {own["lr_schedule"] for own in listed} == {"cosine"}
        assert {why_not_stacked(method.optimizer, own) for own in listed} == {None}


def test_all_train_to_the_end_where_the_lower_one_wins_and_has_more_seeds(computed):
    folder, records, progress = computed
    assert progress.done == progress.total
    trained = [record for record in records if "timing" not in record]
    assert {record["epochs"] for record in trained} == {TASK.epochs}
    for arm in momentum_arms(trained, TASK.problem).values():
        assert len(arm.searched) == sum(len(each[arm.name]) for each in DAMPED[TASK.problem])
        assert arm.best["final_error"] == min(r["final_error"] for r in arm.searched)
        assert [record["seed"] for record in arm.seeds] == list(range(SMALL.seeds))
    store = Store(folder, frozen=True)
    assert momentum.compute(SMALL, store, Progress("", 1.0, stream=None), PROBLEMS) == records


def test_it_says_what_it_did(computed):
    _, records, _ = computed
    described = momentum.describe(SMALL, records)
    assert "trials that all train to the end" in described.caption
    assert "longer runs are not recorded" not in described.caption
    tried, end, *_ = described.notes
    assert tried.startswith("6 settings for every method")
    assert end.endswith("over the whole of a run.")
    (table,) = described.tables
    settings = {row[0]: row[2] for row in table.rows}
    assert "damping 0.15" in settings["ESGD + Nesterov"]
    assert "damping" not in settings["NAG, Sutskever's schedule"]
    momentum.draw(SMALL, records)


def test_arms_that_are_recorded_are_shown_and_the_others_named(computed, tmp_path):
    folder, records, _ = computed
    (path,) = folder.glob("damped-*/records.jsonl")
    kept = [line for line in path.read_text().splitlines() if '"method":"adam"' not in line]
    (tmp_path / path.parent.name).mkdir()
    (tmp_path / path.parent.name / path.name).write_text("\n".join(kept) + "\n")
    progress = Progress("", 1.0, stream=None)
    found = momentum.compute(SMALL, Store(tmp_path, frozen=True), progress, PROBLEMS)
    assert found == [r for r in records if r.get("method") != "adam" and "timing" not in r]
    assert momentum.describe(SMALL, records).notes[-1].startswith("Time")
    said = momentum.describe(SMALL, found).notes[-1]
    assert said == "Not trained yet: Adam (CURVES-like (not CURVES))."
    momentum.draw(SMALL, found)


def test_the_legend_names_the_arms_of_every_panel(computed):
    _, records, _ = computed
    first = [{**r, "task": "mnist"} for r in records if r.get("method") == "esgd"]
    second = [r for r in records if r.get("method") in ("nag", "adam")]
    (legend,) = momentum.draw(SMALL, [*first, *second]).legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == [MOMENTUM_ARMS[name].label for name in ("nag", "adam", "esgd")]


def test_a_second_round_is_shown_arm_by_arm(tmp_path):
    both = replace(SMALL, tasks=MOMENTUM.tasks[:1], arms=("nag", "adam"), seeds=1)
    going = Progress("", 99.0, stream=None)
    whole = momentum.compute(both, Store(tmp_path, timed=False), going, PROBLEMS)
    frozen = Store(tmp_path, frozen=True)
    assert momentum.compute(both, frozen, going, PROBLEMS) == whole
    (path,) = tmp_path.glob("damped-*/records.jsonl")
    gone = DAMPED["mnist"][1]["adam"][0]["lr"], [0.8, 0.999]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [r for r in lines if (r["settings"]["lr"], r["settings"].get("betas")) != gone]
    assert len(kept) == len(lines) - 1
    path.write_text("".join(json.dumps(record) + "\n" for record in kept))
    found = momentum.compute(both, frozen, going, PROBLEMS)
    arms = momentum_arms(found, "mnist")
    assert [len(arms[name].searched) for name in ("nag", "adam")] == [6, 4]
    assert momentum.describe(both, found).notes[0].startswith("4 to 6 settings for every method")


def test_a_task_with_half_an_arm_hides_no_other(computed, tmp_path):
    """And is itself not recorded."""
    folder, _, _ = computed
    (path,) = folder.glob("damped-*/records.jsonl")
    half, *_ = (line for line in path.read_text().splitlines() if '"method":"esgd"' in line)
    (tmp_path / path.parent.name).mkdir()
    (tmp_path / path.parent.name / path.name).write_text(half + "\n")
    two = replace(SMALL, tasks=MOMENTUM.tasks)
    frozen, going = Store(tmp_path, frozen=True), Progress("", 1.0, stream=None)
    with pytest.raises(NotRecorded):
        momentum.compute(two, frozen, going, PROBLEMS)
    first = replace(SMALL, tasks=MOMENTUM.tasks[:1], arms=("nag",))
    momentum.compute(first, Store(tmp_path, timed=False), Progress("", 99.0, stream=None), PROBLEMS)
    found = momentum.compute(two, frozen, going, PROBLEMS)
    assert {record["task"] for record in found} == {"mnist"}
    rest = "RMSProp + momentum, Adam, Jacobi SGD + Nesterov, ESGD + Nesterov (MNIST)"
    assert momentum.describe(two, found).notes[-1] == f"Not trained yet: {rest}."


def test_s17_counts_what_is_recorded_of_it():
    behind = AS_SAID | {"esgd": 0.8}
    some = [r for r in _straight({"nag": 0.7, "esgd": 0.6}) if r["seed"] < 3]
    (judged,) = momentum_claims.claims(_with(behind), [], FIRST_RUNGS, damped=some)
    assert judged.verdict == "holds"
    alone = "NAG, Sutskever's schedule and ESGD + Nesterov alone"
    assert f"damped ({alone}): best of 2 trials" in judged.evidence
    assert momentum_claims.claims([], [], FIRST_RUNGS, damped=some) == []


def test_s17_tells_of_a_rival_that_alone_is_recorded():
    rival = _straight({"nag": 0.6})
    (judged,) = momentum_claims.claims(_with(AS_SAID), [], FIRST_RUNGS, damped=rival)
    assert judged.verdict == "holds with a correction"  # its 0.6 is as good as ESGD's 0.62
    how = "mnist, falling learning rate and more damping"
    assert judged.numbers[how]["nag"] == pytest.approx(0.6 * 1.02)
    assert "more damping, 750,000 updates: NAG, Sutskever's schedule 0.612" in judged.ours


def _straight(finals):
    """The winners of `_with` and, of every arm, a setting that ends higher; nothing shorter."""
    won = [record for record in _with(finals) if record["epochs"] == 2500]
    lost = [
        made_up(MOMENTUM_ARMS, "mnist", arm, falling(2 * final, 101), 0, 2500, momentum=0.95)
        for arm, final in finals.items()
    ]
    return won + lost


@pytest.mark.parametrize(
    ("damped", "verdict"),
    [
        ({}, "does not hold"),
        ({"esgd": 0.62}, "holds"),
        ({"esgd": 0.62, "nag": 0.61}, "holds with a correction"),
        ({"esgd": 0.74}, "does not hold"),
    ],
)
def test_s17_takes_every_arm_from_the_study_where_it_ends_lowest(damped, verdict):
    behind = AS_SAID | {"esgd": 0.8}
    records = _straight(behind | damped)
    (judged,) = momentum_claims.claims(_with(behind), [], FIRST_RUNGS, damped=records)
    assert judged.verdict == verdict
    assert "MNIST, falling learning rate and more damping, 750,000 updates" in judged.ours
    assert "damped: best of 2 trials an arm all trained to the end" in judged.evidence


def test_the_studies_beside_it_judge_it():
    figure = FIGURES["damped"]
    chosen, records = figure.settings(False), _straight(AS_SAID)
    (by_itself,) = figure.joint(chosen, records, {})
    assert by_itself.verdict == "holds"
    assert figure.joint(chosen, records, {"momentum": []}) == []
    behind = {"falling": _with(AS_SAID | {"esgd": 0.8}), "damped": records}
    own = _with(AS_SAID | {"esgd": 0.9})
    (judged,) = FIGURES["momentum"].joint(chosen, own, behind)
    assert judged.verdict == "holds"
    (alone,) = FIGURES["falling"].joint(chosen, behind["falling"], {"damped": records})
    assert alone.verdict == "holds"


def _without(folder, tmp_path, gone):
    """A store with the records of a folder at seed 0, less those that are gone."""
    (path,) = folder.glob("damped-*/records.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [r for r in lines if r["seed"] == 0 and not gone(r)]
    (tmp_path / path.parent.name).mkdir()
    text = "".join(json.dumps(record) + "\n" for record in kept)
    (tmp_path / path.parent.name / path.name).write_text(text)
    return Store(tmp_path, timed=False)


def test_what_is_missing_trains_beside_the_seeds_of_known_winners(computed, tmp_path):
    folder, records, _ = computed
    trained = [record for record in records if "timing" not in record]
    arms = momentum_arms(trained, TASK.problem)
    lost = arms["nag"].best["key"]
    store = _without(folder, tmp_path, lambda record: record["key"] == lost)
    asked = momentum._searched(SMALL, TASK)
    problem = PROBLEMS[TASK.problem](None)
    trial = partial(arm_search._trial, asked, problem, problem.fingerprint)
    (stage,) = arm_search._stages(asked, store, trial)
    assert [each.method for each in stage] == sorted(
        (each.method for each in stage), key=asked.arms.index
    )
    chosen = [(each.method, canonical(each.settings), each.seed) for each in stage if each.seed]
    assert chosen == [
        (name, canonical(arm.best["settings"]), seed)
        for name, arm in arms.items()
        for seed in range(1, SMALL.seeds)
        if name != "nag"  # another setting may still win
    ]
    other = partial(arm_search._trial, asked, problem, "of other data")
    assert not [each for each in arm_search._stages(asked, store, other)[0] if each.seed]
    going = Progress("", momentum.units(SMALL), stream=None)
    again = momentum.compute(SMALL, store, going, PROBLEMS)
    assert sorted(map(_numbers, again)) == sorted(map(_numbers, trained))
    missing = 1 + len(arms) * (SMALL.seeds - 1)
    assert going.worked == missing * TASK.epochs


def _numbers(record):
    return record["key"], record["curve"]["error"]


def test_an_arm_trains_ahead_with_all_that_may_still_win(computed, tmp_path):
    folder, records, _ = computed
    arm = momentum_arms([r for r in records if "timing" not in r], TASK.problem)["nag"]
    lost = arm.searched[-1] if arm.searched[-1]["key"] != arm.best["key"] else arm.searched[0]
    store = _without(folder, tmp_path, lambda record: record["key"] == lost["key"])
    asked = momentum._searched(SMALL, TASK)
    problem = PROBLEMS[TASK.problem](None)
    trial = partial(arm_search._trial, asked, problem, problem.fingerprint)
    (stage,) = arm_search._stages(asked, replace(store, ahead=("nag",)), trial)
    seeds = range(1, SMALL.seeds)
    ahead = [(each.settings, each.seed) for each in stage if each.method == "nag" and each.seed]
    hopes = [
        own["settings"] for own in arm.searched if own["key"] in (arm.best["key"], lost["key"])
    ]
    assert ahead == [(own, seed) for own in hopes for seed in seeds]
    going = Progress("", momentum.units(SMALL), stream=None)
    again = momentum.compute(SMALL, replace(store, ahead=("nag",)), going, PROBLEMS)
    done, total = going.done, going.total
    trained = [record for record in records if "timing" not in record]
    ahead = [r for r in again if r["settings"] == lost["settings"] and r["seed"]]
    assert [record["seed"] for record in ahead] == list(seeds)  # shown as well
    rest = [record for record in again if record not in ahead]
    assert sorted(map(_numbers, rest)) == sorted(map(_numbers, trained))
    for later in (replace(store, frozen=True), store, replace(store, ahead=("nag",))):
        shown = momentum.compute(SMALL, later, Progress("", 99.0, stream=None), PROBLEMS)
        assert sorted(map(_numbers, shown)) == sorted(map(_numbers, again))  # whoever reads it
    beyond = len(seeds) * TASK.epochs  # those of the one that lost
    assert (done, total) == (total, momentum.units(SMALL) + beyond)
