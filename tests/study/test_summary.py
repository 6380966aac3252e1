"""What is read from records: winners, targets, times, edges; the table and its JSON."""

import html
import json
import math
import re
from dataclasses import replace

import markdown
import pytest

from equilibrate.study.methods import METHODS
from equilibrate.study.outcome import at_edge, comparable, cost_to, error_at, judged, winner
from equilibrate.study.plots import figure
from equilibrate.study.space import Choice, LogUniform
from equilibrate.study.summary import plain, spans, summarize
from equilibrate.study.table import table
from tests.study.synthetic import PROVENANCE, record, study

SGD, ADAM, ESGD = METHODS["sgd"], METHODS["adam"], METHODS["esgd"]
HIGH, LOW = {"lr": 0.05}, {"lr": 0.02}
ADAM_RATE = {"lr": 4e-4}

# SGD: a winner (2.0), a loser, one diverged below both; Adam: a winner of 3.0 that is slower.
TRIALS = [
    record("sgd", [9, 6, 4, 2], settings=HIGH),
    record("sgd", [9, 8, 7, 6], settings=LOW),
    record("sgd", [9, 1], settings={"lr": 0.09}, status="diverged"),
    record("adam", [9, 7, 5, 3], settings=ADAM_RATE, seconds=2.0),
]


def by_name(summary):
    return {outcome.method: outcome for outcome in summary.outcomes}


def test_the_winner_is_the_finished_trial_that_ended_lowest():
    assert winner(TRIALS[:3]) is TRIALS[0]
    assert winner(TRIALS[2:3]) is None
    assert winner([{**TRIALS[0], "seed": 1}]) is None


def test_numbers_worked_out_by_hand():
    summary = summarize(TRIALS, [SGD, ADAM])
    sgd, adam = by_name(summary)["sgd"], by_name(summary)["adam"]
    assert dict(sgd.trials) == {"finished": 2, "diverged": 1, "cut": 0}
    assert (sgd.settings, adam.settings) == (HIGH, ADAM_RATE)
    assert (sgd.final_error.median, adam.final_error.median) == (2, 3)
    assert summary.target == 3
    assert (sgd.updates.median, adam.updates.median) == (30, 30)
    assert (sgd.seconds.median, adam.seconds.median) == (3, 6)
    assert summary.equal_seconds == 3
    assert (sgd.error_then.median, adam.error_then.median) == (2, 7)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [([9, 6, 2], [9, 5, 4], False), ([9, 6, 4], [3, 5, 2], True), ([3, 6, 2], [9, 5, 4], True)],
)
def test_a_target_that_a_run_has_met_at_its_start_is_told(first, second, said):
    trials = [record("sgd", first, settings=HIGH), record("adam", second)]
    assert ("before its first update" in table(summarize(trials, [SGD, ADAM]))) == said


def test_methods_are_listed_by_final_error_whatever_the_order_of_request():
    for methods in ([SGD, ADAM], [ADAM, SGD]):
        assert [o.method for o in summarize(TRIALS, methods).outcomes] == ["sgd", "adam"]


@pytest.mark.parametrize("names", [["sgd", "adam"], ["sgd", "nag", "rmsprop", "esgd"]])
@pytest.mark.parametrize("seeds", [1, 2, 3, 4])
def test_every_method_reaches_the_default_target_at_its_median(names, seeds):
    summary = summarize(study(names, seeds=seeds), [METHODS[name] for name in names])
    for outcome in summary.outcomes:
        assert outcome.final_error.seeds == seeds
        assert outcome.final_error.low <= outcome.final_error.median <= outcome.final_error.high
        assert outcome.updates.median <= 2000
        assert 2 * outcome.updates.finite > seeds
    assert summary.target >= max(o.final_error.median for o in summary.outcomes)
    if seeds % 2:
        assert summary.target == max(o.final_error.median for o in summary.outcomes)


def test_a_given_target_replaces_the_default_and_may_be_missed():
    sgd, adam = summarize(TRIALS, [SGD, ADAM], target=2.5).outcomes
    assert sgd.updates.median == 30
    assert math.isinf(adam.updates.median)
    text = table(summarize(TRIALS, [SGD, ADAM], target=2.5))
    assert "updates to 2.5" in text
    assert "not reached" in text


def test_seeds_repeat_the_winner_and_no_other_setting():
    more = [record("sgd", [9, 6, 4, e], settings=HIGH, seed=s) for s, e in ((1, 3), (2, 8))]
    stray = record("sgd", [9, 0], settings=LOW, seed=1)
    sgd = by_name(summarize([*TRIALS, *more, stray], [SGD]))["sgd"]
    assert list(sgd.seeds) == [0, 1, 2]
    assert (sgd.final_error.low, sgd.final_error.median, sgd.final_error.high) == (2, 3, 8)
    assert dict(sgd.trials) == {"finished": 2, "diverged": 1, "cut": 0}


def test_a_seed_that_diverged_counts_as_infinite_not_as_its_last_error():
    more = [record("sgd", [9, 1], settings=HIGH, seed=s, status="diverged") for s in (1, 2)]
    summary = summarize([*TRIALS, *more], [SGD, ADAM])
    assert math.isinf(by_name(summary)["sgd"].final_error.median)
    assert summary.target == 3
    row = next(line for line in table(summary).splitlines() if line.startswith("| SGD"))
    cells = [cell.strip() for cell in row.split("|")]
    assert (cells[4], cells[7]) == ("diverged", "diverged")  # final error, error at equal time


def test_a_seed_that_diverged_from_the_start_has_no_error_at_any_time():
    more = [record("sgd", [], settings=HIGH, seed=s, status="diverged") for s in (1, 2)]
    sgd = by_name(summarize([*TRIALS, *more], [SGD, ADAM]))["sgd"]
    assert math.isinf(sgd.error_then.median)
    assert math.isinf(sgd.updates.median)


def test_a_method_without_a_finished_trial_is_listed_last_with_advice():
    summary = summarize(TRIALS[2:], [SGD, ADAM])
    assert [o.method for o in summary.outcomes] == ["adam", "sgd"]
    assert "SGD: no trial finished; search smaller learning rates" in table(summary)
    assert "`equilibrate inspect` tells whether the loss is a number at the start" in table(summary)
    nothing = summarize(TRIALS[2:3], [SGD])
    assert nothing.target is None
    assert "no trial finished" in table(nothing)


DIFFERENT = {
    "device": {"provenance": {**PROVENANCE, "device": "cuda: X"}},
    "threads": {"provenance": {**PROVENANCE, "threads": 1}},
    "versions": {"provenance": {**PROVENANCE, "versions": {"torch": "2.11"}}},
    "precision": {"precision": "tf32"},
    "trials trained together": {"together": 8},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_times_of_different_conditions_are_not_compared(what):
    summary = summarize([*TRIALS[:3], {**TRIALS[3], **DIFFERENT[what]}], [SGD, ADAM])
    assert what in summary.no_times
    assert all(o.seconds is None and o.error_then is None for o in summary.outcomes)
    assert summary.time_profile == {}
    assert summary.profile  # updates are compared all the same
    text = table(summary)
    assert "seconds to" not in text
    assert f"times are left out: the records differ in {what}" in text


def test_times_are_compared_where_all_methods_share_conditions():
    repeats = [{**TRIALS[place], "seed": s, "together": 8} for place in (0, 3) for s in (1, 2)]
    timed, reason = comparable({"sgd": [TRIALS[0], *repeats[:2]], "adam": repeats[2:]})
    assert reason == ""
    assert [r["seed"] for r in timed["sgd"]] == [1, 2]
    assert "8 trials trained together, seeds 1 to 2" in table(
        summarize([*TRIALS, *repeats], [SGD, ADAM])
    )


@pytest.mark.parametrize(
    ("value", "where", "end"),
    [
        (0.0101, LogUniform(0.01, 0.1), "lower"),
        (0.0125, LogUniform(0.01, 0.1), "lower"),
        (0.0127, LogUniform(0.01, 0.1), None),
        (0.0793, LogUniform(0.01, 0.1), None),
        (0.0795, LogUniform(0.01, 0.1), "upper"),
        (0.02, LogUniform(0.02, 0.02), None),
        (1e-6, Choice(1e-4, 1e-5, 1e-6), "lower"),
        (1e-5, Choice(1e-4, 1e-5, 1e-6), None),
        (1e-4, Choice(1e-4, 1e-5, 1e-6), "upper"),
        (0.9, Choice(0.9, 0.95), None),
        ("a", Choice("a", "b", "c"), None),
        ([0.9, 0.99], Choice((0.9, 0.99), (0.9, 0.999), (0.8, 0.9)), None),
    ],
)
def test_the_edge_of_a_range(value, where, end):
    said = at_edge({"x": value}, {"x": where})
    assert said == [] if end is None else f"at the {end} edge" in said[0]


def test_the_table_says_which_winner_lies_at_an_edge():
    edge = record("sgd", [9, 1], settings={"lr": 0.099})
    assert "SGD: lr 0.099 is at the upper edge of 0.01 to 0.1" in table(summarize([edge], [SGD]))
    assert "edge" not in table(summarize(TRIALS, [SGD, ADAM]))


def test_the_table_warns_in_the_outer_third_of_a_range_and_not_inside():
    """A sixth at either end: 0.01 * 10^(1/6) = 0.01468, 0.1 / 10^(1/6) = 0.0681."""
    for rate, said in ((0.0147, 0), (0.0146, 1), (0.068, 0), (0.0682, 1)):
        text = table(summarize([record("sgd", [9, 1], settings={"lr": rate})], [SGD]))
        assert text.count("edge of 0.01 to 0.1; the best may lie outside") == said


def test_the_table_shows_every_range():
    text = table(summarize(TRIALS, [SGD, ADAM]))
    (adam,) = [line for line in text.splitlines() if line.startswith("| Adam")]
    assert "lr 0.0001 to 0.001, betas (0.9, 0.99) or (0.9, 0.999)" in adam
    values = plain(summarize(TRIALS, [SGD, ADAM]))["outcomes"]
    assert values[0]["ranges"] == {"lr": "0.01 to 0.1"}


def test_costs_and_errors_are_those_measured_never_interpolated():
    curve = record("sgd", [9, 6, 6, 2], seconds=2.0)
    assert [cost_to(curve, t) for t in (9, 6, 5.9, 2)] == [0, 10, 30, 30]
    assert [error_at(curve, s) for s in (0, 1.9, 2, 5.9, 100)] == [9, 9, 6, 6, 2]


def test_the_json_holds_the_numbers_of_the_table_and_is_strict():
    summary = summarize(study(["sgd", "esgd"], seeds=3), [SGD, ESGD])
    values = json.loads(json.dumps(plain(summary), allow_nan=False))
    for outcome, row in zip(values["outcomes"], table(summary).splitlines()[4:], strict=False):
        assert row.split("|")[1].strip() == outcome["label"]
        assert row.split("|")[4].split()[0] == f"{outcome['final_error']['median']:.4g}"


def test_the_json_of_a_target_never_reached_is_null():
    values = plain(summarize(TRIALS, [SGD, ADAM], target=-1.0))
    assert [o["updates"]["median"] for o in values["outcomes"]] == [None, None]


def test_the_name_of_the_problem_is_shown_as_it_is():
    text = table(summarize(study(["sgd"], problem="CURVES-like"), [SGD]))
    assert text.startswith("# CURVES-like: ")


NAMES = [
    '<script>alert("t")</script> & co',
    "a | b",
    "*a* _b_ __c__ d_e `f` ~~g~~ $h_1$",
    "[a](javascript:b) ![c](d)",
    r"back\slash \| pipe",
    "two\nlines",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_read_as_it_is_never_as_markup(name):
    method = replace(SGD, label=name)
    edge = record("sgd", [9, 1], settings={"lr": 0.099}, problem=name)
    page = markdown.markdown(table(summarize([edge], [method])), extensions=["tables"])
    shown = html.escape(" ".join(name.split()), quote=False)
    read = re.sub(r"&#(\d+);", lambda code: html.escape(chr(int(code[1])), quote=False), page)
    assert f"<h1>{shown}: 1 method, 3 epochs</h1>" in read
    assert f"<td>{shown}</td>" in read
    assert f"<li>{shown}: lr 0.099 is at the upper edge" in read


def test_every_row_of_the_table_has_as_many_cells_whatever_is_in_them():
    odd = record("sgd", [9, 1], settings={"lr": 0.03})
    text = table(summarize([{**odd, "settings": {"lr": 0.03}}], [SGD]))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1


def test_no_records_are_an_error_in_words():
    with pytest.raises(ValueError, match="no records"):
        summarize([], [SGD])


def test_spans():
    assert [spans(x) for x in ([0], [0, 1], [1, 3], [0, 1, 2, 5, 6])] == [
        "0", "0 to 1", "1, 3", "0 to 2, 5 to 6",
    ]  # fmt: skip


# The last error is above the first, though a number: on its way to infinity.
ENDINGS = {
    "finished": (record("sgd", [9, 2]), "finished"),
    "exploded": (record("sgd", [3.27, 40.0, 1.7e15]), "diverged"),
    "where it began": (record("sgd", [9, 9]), "finished"),
    "not a number": (record("sgd", [], status="diverged"), "diverged"),
    "cut": (record("sgd", [9, 5], status="cut"), "cut"),
    "cut on its way up": (record("sgd", [9, 50], status="cut"), "diverged"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_how_a_trial_ended_is_said_alike_by_table_and_picture(name):
    found, expected = ENDINGS[name]
    summary = summarize([found, TRIALS[3]], [SGD, ADAM])
    assert {k: n for k, n in by_name(summary)["sgd"].trials.items() if n} == {expected: 1}
    figure_ = figure([found, TRIALS[3]], [SGD, ADAM], summary, (10, 8))
    crosses = [line for line in figure_.axes[3].lines if line.get_marker() == "x"]
    assert len(crosses) == (expected == "diverged")
    assert ("diverged: the error left" in table(summary)) == (expected == "diverged")
    assert (winner(judged([found])) is found) == (expected == "finished")


def test_an_exploded_trial_wins_nothing_and_sets_no_target():
    summary = summarize([ENDINGS["exploded"][0], *TRIALS[3:]], [SGD, ADAM])
    assert by_name(summary)["sgd"].settings is None
    assert summary.target == 3
    assert "SGD: no trial finished" in table(summary)


def test_a_seed_that_exploded_counts_as_infinite():
    seeds = [record("sgd", [3.27, 1.7e15], settings=HIGH, seed=seed) for seed in (1, 2)]
    summary = summarize([*TRIALS, *seeds], [SGD, ADAM])
    assert math.isinf(by_name(summary)["sgd"].final_error.median)
    assert by_name(summary)["sgd"].final_error.finite == 1
