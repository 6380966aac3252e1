"""Beside a winner at seed 0, the setting that is best over seeds: where there is one, and shown."""

import statistics

import pytest

from equilibrate.paper import momentum, momentum_drawing
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS, momentum_arms
from equilibrate.paper.steady import SUFFIX, steady_arms
from tests.paper.made_up import falling, made_up

# The errors of a winner at its seeds, those of another setting, and whether that is the steady one.
CASES = {
    "lucky winner": ([1.0, 30.0, 40.0], [1.1, 1.2, 1.3], True),
    "as lucky once more": ([1.0, 1.05, 40.0], [1.1, 1.2, 1.3], False),
    "winner that is best": ([1.0, 1.1, 1.2], [1.3, 1.4, 1.5], False),
    "other with fewer seeds": ([1.0, 30.0, 40.0], [1.1, 1.2], False),
    "one seed each": ([1.0], [1.1], False),
    "winner with one seed": ([1.0], [1.1, 0.8, 0.9], False),
    "other with more seeds": ([1.0, 30.0, 40.0], [1.1, 1.2, 1.3, 1.4], False),
    "other that died once": ([1.0, 30.0, 40.0], [1.1, 1.2, 50.0], True),
}
cases = pytest.mark.parametrize(("won", "other", "shown"), CASES.values(), ids=CASES)


def records(won, other):
    return [
        made_up(MOMENTUM_ARMS, "mnist", "esgd", falling(last), seed, lr=lr)
        for lr, errors in ((0.03, won), (0.01, other))
        for seed, last in enumerate(errors)
    ]


@cases
def test_it_is_there_where_its_median_is_lower_with_as_many_seeds(won, other, shown):
    found = steady_arms(momentum_arms(records(won, other), "mnist"), records(won, other))
    assert list(found) == (["esgd" + SUFFIX] if shown else [])
    for arm in found.values():
        assert arm.best["settings"]["lr"] == 0.01
        assert [record["curve"]["error"][-1] for record in arm.seeds] == pytest.approx(other)


@cases
def test_the_winner_stays_the_winner(won, other, shown):
    (arm,) = momentum_arms(records(won, other), "mnist").values()
    assert arm.best["settings"]["lr"] == 0.03
    assert len(arm.seeds) == len(won)


@cases
def test_picture_and_notes_tell_of_it(won, other, shown):
    listed = records(won, other)
    (legend,) = momentum_drawing.draw(listed, {}).legends
    names = [text.get_text() for text in legend.get_texts()]
    label = MOMENTUM_ARMS["esgd"].label
    assert names == [label, f"{label}, best over seeds"][: 1 + shown]
    notes = momentum.describe(momentum.settings(False, "damped"), listed).notes
    told = [note for note in notes if note.startswith("Dashed")]
    assert len(told) == shown
    assert all("lr 0.01" in note and "did not win at seed 0" in note for note in told)


@pytest.mark.parametrize("ends", [[1.0, 3.0], [1.0, 3.0, 2.5]])
def test_the_curve_that_is_drawn_ends_at_the_median_that_is_told(ends):
    listed = [made_up(MOMENTUM_ARMS, "mnist", "esgd", falling(e), s) for s, e in enumerate(ends)]
    picture = momentum.draw(momentum.Settings(study="damped"), listed)
    (curve,) = (line for line in picture.axes[0].lines if line.get_label() == "ESGD + Nesterov")
    assert curve.get_ydata()[-1] == pytest.approx(statistics.median(ends))
