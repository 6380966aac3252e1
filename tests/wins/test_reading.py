"""What is read out of a fight: intervals, gaps, who was first; on results written by hand."""

import itertools
import math
from dataclasses import replace

import pytest

from equilibrate.wins.fight import CHOICES, Result, least_worst
from equilibrate.wins.interval import COVERAGE, coverage, interval, rank
from equilibrate.wins.page import standing
from equilibrate.wins.reading import scores, stuck, verdict
from equilibrate.wins.tasks import TASKS
from equilibrate.wins.timing import Pace

TASK = replace(TASKS["image-64-sine"], fighters=("esgd", "adamw", "nadam"))
EVEN = {fighter: Pace(1.0) for fighter in TASK.fighters}


def record(error, reached=10):
    """A final that starts at 1, is at its end after `reached` updates, and goes on to 100."""
    curve = {"updates": [0, reached, 100], "error": [1.0, error, error]}
    return {"final_error": error, "status": "finished", "curve": curve, "settings": {"lr": 0.1}}


def result(task=TASK, **finals):
    rates = dict.fromkeys(finals, 0.1)
    grids = {name: [0.01, 0.1, 1.0] for name in finals}
    return Result(task, grids, finals, rates, finals, {"esgd": finals["esgd"]})


def made(esgd, adamw, nadam=(1.0,) * 5):
    rows = {"esgd": esgd, "adamw": adamw, "nadam": nadam}
    return result(**{name: [record(e) for e in errors] for name, errors in rows.items()})


@pytest.mark.parametrize("count", range(1, 13))
def test_an_interval_covers_as_often_as_the_formula_says(count):
    """Every pattern of 'below' and 'above' the true median is equally likely: count them all."""
    k = rank(count)
    patterns = itertools.product((-1, 1), repeat=count)
    spreads = [interval(pattern) for pattern in patterns]
    covered = sum(spread.low < 0 < spread.high for spread in spreads)
    assert covered / 2**count == coverage(count, k)
    assert count < 5 or coverage(count, k) >= COVERAGE
    assert coverage(count, k + 1) < COVERAGE  # the next one would be narrower


def test_of_fifteen_the_fourth_counts_and_not_its_neighbours():
    found = interval([float(n) for n in range(1, 16)])
    assert (found.low, found.median, found.high) == (4.0, 8.0, 12.0)
    lost = interval([1.0] * 12 + [math.inf] * 3)
    assert lost.high == 1.0  # three of fifteen that failed do not move it
    assert interval([1.0] * 11 + [math.inf] * 4).high == math.inf


def test_three_lost_finals_of_fifteen_leave_a_win_and_four_do_not():
    nadam = (0.1,) * 15
    for lost, word, apart in ((3, "wins", True), (4, "mixed", False)):
        found = made((1e-4,) * (15 - lost) + (0.5,) * lost, (0.2,) * 15, nadam)
        assert standing(found, EVEN) == word
        assert verdict(found, EVEN).apart is apart
        assert scores(found, EVEN)[0].behind == lost


WORDS = {
    "wins": (1e-4, 2e-4, 1e-4, 1e-4, 1e-4),
    "ahead": (0.06, 0.07, 0.06, 0.06, 0.06),
    "level": (0.1, 0.2, 0.1, 0.1, 0.05),
    "mixed": (0.05, 0.2, 0.05, 0.05, 0.05),
    "behind": (0.11, 0.12, 0.11, 0.12, 0.13),
    "loses": (0.5, 0.6, 0.5, 0.5, 0.5),
}


@pytest.mark.parametrize("word", WORDS)
def test_the_word_for_a_gap(word):
    bar = (0.1,) * 5
    assert standing(made(WORDS[word], bar, (0.3,) * 5), EVEN) == word


def test_a_clear_gap_with_intervals_that_meet_is_no_win():
    """Paired gaps of 10 dB, but the instances themselves differ by more."""
    hard = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    found = made(tuple(e / 10 for e in hard), hard)
    assert verdict(found, EVEN).gap.low == pytest.approx(10)
    assert standing(found, EVEN) == "ahead"


def test_the_gap_to_adamw_is_told_beside_that_to_the_best_rival():
    found = verdict(made((1e-2,) * 5, (1e-1,) * 5, (1e-3,) * 5), EVEN)
    assert found.rival == "nadam"
    assert found.gap.median == pytest.approx(-10)
    assert found.gap_to_baseline.median == pytest.approx(10)


def timed(esgd, adamw, nadam):
    rows = {"esgd": esgd, "adamw": adamw, "nadam": nadam}
    return result(**{name: [record(0.1, reached=u) for u in rows[name]] for name in rows})


def test_the_first_to_the_target_is_told_by_the_clock_with_its_warm_up():
    found = timed((20,) * 5, (100,) * 5, (30,) * 5)
    assert verdict(found, EVEN).sooner
    assert verdict(found, EVEN).sooner_apart
    slow = {**EVEN, "esgd": Pace(2.0)}  # 40 s against 30
    assert verdict(found, slow).soonest == "nadam"
    assert not verdict(found, slow).sooner
    assert not verdict(found, {**EVEN, "esgd": Pace(1.0, first=15.0)}).sooner  # 20 + 14 s
    assert scores(found, {**EVEN, "esgd": Pace(1.0, first=9.0)})[0].seconds.median == 28.0


def test_being_sooner_needs_intervals_apart_to_be_said_so():
    found = verdict(timed((20, 20, 20, 20, 40), (100,) * 5, (30,) * 5), EVEN)
    assert found.sooner
    assert not found.sooner_apart


def test_nobody_is_first_to_a_target_that_no_rival_meets():
    rows = {"esgd": [record(0.5)] * 2, "adamw": [record(0.1), record(0.3)]}
    found = result(replace(TASK, fighters=("esgd", "adamw")), **rows)
    assert verdict(found, EVEN).soonest == ""
    assert not verdict(found, EVEN).sooner


def test_the_least_worst_rate_minds_the_instance_that_went_wrong():
    rows = [(0.1, 1e-7), (0.1, 1e-8), (0.3, 1e-15), (0.3, 0.2), (0.01, 1e-3), (0.01, 1e-3)]
    trials = [{**record(error), "settings": {"lr": rate}} for rate, error in rows]
    assert least_worst(trials) == (0.1, 1e-7)
    assert [CHOICES[name](trials) for name in ("mean", "worst")] == [0.3, 0.1]
    trials.append({**trials[0], "status": "diverged"})
    assert least_worst(trials) == (0.01, 1e-3)


def test_a_fighter_that_never_moved_is_named():
    fought = made(
        [0.1, 0.2, 0.1, 0.1, 0.3], [0.5] * 5, [1.0, 1.0 + 1e-8, 0.9, 1.0 + 1e-3, math.inf]
    )
    assert stuck(fought) == {"nadam": 2}
    assert stuck(made([0.1] * 5, [0.5] * 5, [0.9] * 5)) == {}
