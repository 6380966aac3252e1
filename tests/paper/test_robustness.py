"""Robustness: its points, its records, its verdicts."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from equilibrate import ESGD
from equilibrate.optim import ALGORITHM_1
from equilibrate.paper import robustness, robustness_claims, robustness_drawing
from equilibrate.paper import robustness_points as rp
from equilibrate.paper.records import NotRecorded, Store
from equilibrate.study.progress import Progress
from equilibrate.study.stacked_rules import structure
from tests.study.stacks import dense

FULL, QUICK = robustness.settings(False), robustness.settings(True)
PROBLEMS = {"tiny": lambda folder: dense((12, 8, 3, 8, 12), cases=32), "second": lambda f: dense()}
TINY = replace(
    QUICK,
    task=rp.Task("tiny", 2, 0.03),
    second=rp.Task("second", 1, 0.02),
    warmups=(1, 3),
    timing=rp.Timing(together=1, rounds=3, every=(1, 20)),
)


# The figure: points, trials, records


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    progress = Progress("robustness", robustness.units(TINY), stream=None)
    records = robustness.compute(TINY, Store(folder), progress, PROBLEMS)
    return folder, records, progress


def redrawn(folder):
    def no_data():
        raise AssertionError("redrawing must not load data")

    def without_data(make):
        return lambda folder: replace(make(folder), data=no_data)

    bare = {name: without_data(make) for name, make in PROBLEMS.items()}
    silent = Progress("again", 1, stream=None)
    return robustness.compute(TINY, Store(folder, frozen=True), silent, bare)


def test_every_point_has_an_error(computed):
    found = rp.errors(TINY, computed[1])
    assert sum(map(len, found.values())) == len(rp.points(TINY))
    assert {panel for panel, _ in found} == set(rp.PANELS)


def test_all_work_is_counted(computed):
    progress = computed[2]
    assert progress.done == progress.total == robustness.units(TINY)


def test_records_alone_are_enough_to_redraw(computed):
    folder, records, _ = computed
    again = redrawn(folder)
    assert again == records
    robustness.draw(TINY, again)
    assert robustness.claims(TINY, again) == robustness.claims(TINY, records)


def test_without_the_timing_the_rest_is_judged_and_drawn(computed, tmp_path):
    folder, records, _ = computed
    for study in folder.iterdir():
        if study.is_dir():
            (tmp_path / study.name).symlink_to(study)
    again = redrawn(tmp_path)
    assert again == [record for record in records if "timing" not in record]
    robustness.draw(TINY, again)
    assert verdicts(TINY, again)["S14"] == "not yet run"
    assert verdicts(TINY, again)["S13"] != "not yet run"


def test_a_frozen_store_without_trials_says_so(tmp_path):
    with pytest.raises(NotRecorded):
        redrawn(tmp_path)


@pytest.mark.parametrize("chosen", [FULL, QUICK], ids=["full", "quick"])
def test_equal_structures_are_neighbours(chosen):
    listed = robustness.list_trials(chosen, chosen.task, "", "", 200)
    kinds = [
        (t.method, structure(rp.METHODS[t.method].optimizer, t.settings))
        for t in listed
        if t.method != "row-column"
    ]
    blocks = 1 + sum(a != b for a, b in pairwise(kinds))
    assert blocks == len(set(kinds))


def test_the_full_figure_is_what_was_asked_for():
    listed = robustness.list_trials(FULL, FULL.task, "", "", 200)
    assert len(listed) <= 64  # one stack
    found = {}
    for point in rp.points(FULL):
        found.setdefault((point.panel, point.series), set()).add(point.x)
    assert found["damping", "paper"] == found["damping", "shipped"] == found["damping", "second"]
    assert found["damping", "paper"] == {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0}
    assert {min(found["rate", s]) for s in ("literal", "paper", "shipped")} == {0.003}
    assert found["warmup", "paper"] == found["warmup", "fast"] == {1, 3, 20, 100}
    assert found["every", "paper"] == {1, 5, 20, 100}
    assert found["decay", "paper"] == {None, 0.9999, 0.9995, 0.998, 0.99}
    assert len([p for p in rp.points(FULL) if p.panel == "vectors"]) == 8  # 2 (3 seeds + 1)


def test_a_point_differs_from_its_centre_in_one_setting_alone():
    centres = {
        "paper": rp.PAPER, "second": rp.PAPER, "fast": rp.PAPER, "shipped": rp.SHIPPED,
        "literal": rp.LITERAL,
    }  # fmt: skip
    for point in rp.points(FULL):
        if point.series in centres:
            rate = FULL.fast if point.series == "fast" else point.task.rate
            centre = {**centres[point.series], "lr": rate}
            changed = [name for name in point.settings if point.settings[name] != centre[name]]
            assert len(changed) <= 1, point


def test_the_centres_are_algorithm_1_and_esgd_as_shipped():
    x = torch.ones(1, requires_grad=True)
    shipped, plain = ESGD([x], **rp.SHIPPED), ESGD([x])
    assert shipped.param_groups[0]["damping_kind"] == "relative"
    assert shipped.state_dict() == plain.state_dict()
    assert {**rp.LITERAL, "probe_every": 1} == ALGORITHM_1


# The verdicts, on made-up records


def made_up(chosen, error, seconds=None):
    """Records of every trial, its error by `error(task, method, settings)`; None diverged."""
    records = []
    for task in robustness._tasks(chosen):
        for trial in robustness.list_trials(chosen, task, "", "", 200):
            found = error(task.problem, trial.method, trial.settings)
            status = "diverged" if found is None else "finished"
            described = {**trial.describe(), "status": status, "final_error": found}
            records.append({**described, "task": task.problem})
    if seconds:
        data = {"device": "cpu", "seconds": seconds}
        records.append({"timing": "mnist", "settings": {"together": 1}, "data": data})
    return records


def verdicts(chosen, records):
    return {j.claim: j.verdict for j in robustness.claims(chosen, records)}


def flat(task, method, settings):
    return 4.0


def test_nothing_recorded_is_not_yet_run():
    assert set(verdicts(FULL, []).values()) == {"not yet run"}
    robustness.describe(FULL, [])
    robustness.draw(FULL, [])


def test_s13_holds_where_the_papers_damping_is_as_good_as_the_best_on_both_tasks():
    assert verdicts(FULL, made_up(FULL, flat))["S13"] == "holds"


@pytest.mark.parametrize("task", ["mnist", "curves-like"])
@pytest.mark.parametrize("bad", [4.0 * 1.26, None], ids=["worse", "diverged"])
def test_s13_does_not_hold_where_one_task_says_otherwise(task, bad):
    def error(where, method, settings):
        return bad if where == task and settings.get("damping") == 1e-4 else 4.0

    assert verdicts(FULL, made_up(FULL, error))["S13"] == "does not hold"


def test_the_range_as_good_ends_where_an_error_is_worse():
    ratios = {1e-6: 1.1, 1e-5: 1.3, 1e-4: 1.0, 1e-3: 1.2, 1e-2: math.inf, 1e-1: 1.0}
    assert robustness_claims.good_range(ratios, 1e-4) == (1e-4, 1e-3)
    assert robustness_claims.good_range(ratios, 1e-3) == (1e-4, 1e-3)
    assert robustness_claims.good_range(ratios, 1e-1) == (1e-1, 1e-1)
    assert robustness_claims.good_range(ratios, 1e-2) is None


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ([1.10, 1.11, 1.12], "holds"),
        ([1.14, 1.15, 1.30], "holds with a correction"),
        ([1.14, 1.20, 1.30], "does not hold"),
        ([1.20, 1.21, 1.22], "does not hold"),
    ],
)
def test_s14_is_judged_by_the_interval_of_paired_ratios(times, verdict):
    slow = [1.0, 2.0, 3.0]  # the machine slows down: only ratios within a round are fair
    seconds = {"sgd": slow, "20": [a * b for a, b in zip(slow, times, strict=True)]}
    assert verdicts(FULL, made_up(FULL, flat, seconds))["S14"] == verdict


@pytest.mark.parametrize(
    ("row_column", "verdict"), [(3.0, "does not hold"), (4.9, "does not hold"), (5.1, "holds")]
)
def test_s15_holds_where_row_column_is_clearly_worse(row_column, verdict):
    def error(task, method, settings):
        return row_column if method == "row-column" else 4.0

    assert verdicts(FULL, made_up(FULL, error))["S15"] == verdict


def test_s15_holds_where_row_column_always_diverges():
    def error(task, method, settings):
        return None if method == "row-column" else 4.0

    assert verdicts(FULL, made_up(FULL, error))["S15"] == "holds"


def test_the_literal_start_is_told_with_its_numbers():
    def error(task, method, settings):
        return 70.5 if settings.get("warmup_probes") == 1 and settings["lr"] >= 0.03 else 4.0

    note = robustness.describe(FULL, made_up(FULL, error)).notes[0]
    assert "0.01: 4 against 4; 0.03: 70.5 against 4" in note
    assert "1 70.5, 3 4, 20 4, 100 4" in note


def _top_row(records):
    return {k: v for k, v in rp.errors(FULL, records).items() if k[0] in list(rp.PANELS)[:3]}


def test_what_diverged_stands_above_everything_finite():
    def error(task, method, settings):
        return None if settings["lr"] == 0.3 else 4.0

    records = made_up(FULL, error)
    low, top, high = robustness_drawing._limits(_top_row(records))
    assert low < 4.0 < top < high
    picture = robustness.draw(FULL, records)
    crosses = [line for line in picture.axes[1].lines if line.get_marker() == "x"]
    assert {float(cross.get_ydata()[0]) for cross in crosses} == {top}
    assert len(crosses) == 3  # literal, with warm-up, as shipped
