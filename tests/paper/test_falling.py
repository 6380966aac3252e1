"""The momentum study with a learning rate that falls: equal searches, and its part in S17."""

from dataclasses import replace
from functools import partial

import pytest

from equilibrate.paper import momentum, momentum_claims
from equilibrate.paper.falling_arms import FALLING_ARMS, FALLING_ROUNDS, remembers
from equilibrate.paper.figures import FIGURES
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS, QUICK_SETTINGS, grid
from equilibrate.paper.records import Store
from equilibrate.study.progress import Progress
from equilibrate.study.stacked_rules import why_not_stacked
from tests.paper.shrunken import MOMENTUM, PROBLEMS
from tests.paper.test_momentum_claims import AS_SAID, FIRST_RUNGS, _with

SMALL = replace(MOMENTUM, study="falling", tasks=MOMENTUM.tasks[1:])
CURVATURE = {"jacobi", "esgd"}
BEHIND = AS_SAID | {"esgd": 0.8}


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("falling")
    progress = Progress("falling", momentum.units(SMALL), stream=None)
    return folder, momentum.compute(SMALL, Store(folder), progress, PROBLEMS), progress


@pytest.mark.parametrize("arms", FALLING_ROUNDS, ids=["first", "second", "third"])
def test_every_arm_has_as_many_trials_in_as_wide_a_decade(arms):
    assert list(arms) == list(MOMENTUM_ARMS)
    for name, arm in arms.items():
        own = grid(arm, 3)
        assert len(own) == 9
        assert arm.space["lr"].decades == pytest.approx(1)
        assert {settings["lr_schedule"] for settings in own} == {"cosine"}
        assert arm.label == MOMENTUM_ARMS[name].label
        assert all(why_not_stacked(arm.optimizer, settings) is None for settings in own)


def test_a_later_round_tries_nothing_that_was_tried_before():
    tried = {name: [] for name in MOMENTUM_ARMS}
    for arms in FALLING_ROUNDS:
        for name, arm in arms.items():
            own = grid(arm, 3)
            assert not [settings for settings in own if settings in tried[name]]
            tried[name] += own


def test_what_a_later_round_adds_it_adds_for_all_that_have_it():
    """A floor under the mean of D, then a longer memory: whoever has a D, or remembers anything."""
    _, second, third = FALLING_ROUNDS
    assert {name for name, arm in second.items() if arm.fixed.get("mean_floor")} == CURVATURE
    longer = {n for n, arm in third.items() if all(map(remembers, grid(arm, 3)))}
    assert longer == set(MOMENTUM_ARMS) - {"nag"}
    earlier = [own for arms in FALLING_ROUNDS[:2] for arm in arms.values() for own in grid(arm, 3)]
    assert not any(map(remembers, earlier))


def test_it_trains_in_folders_of_its_own_and_says_what_it_did(computed):
    folder, records, progress = computed
    assert progress.done == progress.total
    assert "falling-curves-like" in {path.name for path in folder.iterdir()}
    trained = [record for record in records if "timing" not in record]
    assert {record["settings"]["lr_schedule"] for record in trained} == {"cosine"}
    described = momentum.describe(SMALL, records)
    assert any("falls to zero along half a cosine" in note for note in described.notes)
    assert not any("a tenth" in note or "second grid" in note for note in described.notes)
    assert [len(table.rows) for table in described.tables] == [5]
    frozen = partial(momentum.compute, SMALL, Store(folder, frozen=True), problems=PROBLEMS)
    assert frozen(progress=Progress("falling", 1.0, stream=None)) == records


def test_a_quick_one_falls_as_well():
    quick = FIGURES["falling"].settings(True)
    (only,) = momentum._rounds(quick)
    for arm, (own,) in only.items():
        assert own == {**FALLING_ARMS[arm].fixed, **QUICK_SETTINGS[arm]}


@pytest.mark.parametrize(
    ("constant", "falling", "verdict"),
    [
        (BEHIND, AS_SAID, "holds"),
        (AS_SAID, BEHIND, "holds"),
        (BEHIND, BEHIND, "does not hold"),
        (BEHIND, AS_SAID | {"nag": 0.6}, "holds with a correction"),
        (BEHIND | {"nag": 0.55}, AS_SAID, "holds with a correction"),  # a rival of the other study
    ],
)
def test_s17_sets_every_arm_at_its_best_beside_the_others(constant, falling, verdict):
    (judged,) = momentum_claims.claims(_with(constant), [], FIRST_RUNGS, _with(falling))
    assert judged.verdict == verdict
    assert ("Correction" in judged.ours) == (verdict == "holds with a correction")
    assert "MNIST, 750,000 updates" in judged.ours
    assert "MNIST, falling learning rate, 750,000 updates" in judged.ours
    for name in ("momentum", "falling"):
        assert f"{name}: best of 2 trials" in judged.evidence
    how = {"mnist": constant, "mnist, falling learning rate": falling}
    for task, finals in how.items():
        assert judged.numbers[task]["nag"] == pytest.approx(finals["nag"] * 1.02)


def test_a_task_that_one_study_alone_has_counts_as_well():
    constant = [*_with(BEHIND), *_with(AS_SAID | {"adam": 0.5}, "curves-like")]
    (judged,) = momentum_claims.claims(constant, [], FIRST_RUNGS, _with(AS_SAID))
    assert judged.verdict == "holds with a correction"
    assert "reached; on CURVES-like (not CURVES) Adam is lower" in judged.ours


def test_the_falling_study_is_judged_with_the_other_and_without_it():
    joint = FIGURES["momentum"].joint
    chosen = FIGURES["momentum"].settings(False)
    (judged,) = joint(chosen, _with(BEHIND), {"falling": _with(AS_SAID)})
    assert judged.verdict == "holds"
    figure = FIGURES["falling"]
    full, quick = figure.settings(False), figure.settings(True)
    assert figure.joint(full, _with(AS_SAID), {"momentum": _with(BEHIND)}) == []
    assert figure.joint(quick, _with(AS_SAID), {}) == []
    (alone,) = figure.joint(full, _with(AS_SAID), {})
    assert alone.verdict == "holds"
    assert full.rounds == len(FALLING_ROUNDS)
