"""Random search and successive halving: where trials are evaluated, and who is cut."""

import math

import pytest

from equilibrate.study.files import StudyError
from equilibrate.study.search import Search, cut, successive_halving
from tests.study import small
from tests.study.small import checkpoints, numbers, run, stopped, trial, trials


def test_a_checkpoint_damaged_between_two_rungs_is_made_up_for_by_a_resume(tmp_path):
    folder = tmp_path / "damaged"

    def damage(moment):
        if moment.epoch == 1 and moment.trials == 3:  # the second group; the first one waits
            for path in checkpoints(folder):
                path.write_bytes(b"?")

    with pytest.raises(StudyError, match="damaged while the study ran"):
        run(folder, halving=True, report=damage)
    assert numbers(run(folder, halving=True)) == numbers(run(tmp_path / "other", halving=True))


@pytest.mark.parametrize("groups", [small.threes, lambda trials: [[t] for t in trials]])
def test_halving_cuts_over_all_groups_of_a_method(tmp_path, groups):
    records = run(tmp_path, halving=True, together=groups).values()
    plain = [record for record in records if record["method"] == "plain"]
    alive = plain
    for place, rung in enumerate((1, 2)):
        errors = [
            dict(zip(r["curve"]["epoch"], r["curve"]["error"], strict=True)).get(rung, math.inf)
            for r in alive
        ]
        passing = [alive[row] for row in cut(errors, eta=2)]
        stopped_here = [record for record in plain if record["rung"] == rung]
        assert len(passing) == (3, 1)[place]
        gone = [r for r in alive if r not in passing and r["status"] != "diverged"]
        assert stopped_here == gone
        assert all(r["status"] == "cut" and r["curve"]["epoch"][-1] == rung for r in gone)
        alive = passing
    assert [record["status"] for record in alive] == ["finished"]


def test_halving_enlarged_lets_new_trials_compete_with_the_recorded_ones(tmp_path):
    first = run(tmp_path, trials()[:3], halving=True)
    again = run(tmp_path, halving=True)
    assert first.items() <= again.items()
    assert {record["status"] for record in again.values()} == {"finished", "cut", "diverged"}


def test_halving_enlarged_does_not_call_back_who_passed(tmp_path):
    poor = [trials()[0], trials()[4]]
    stopped(tmp_path, 5, listed=poor, halving=True)  # the first has passed the rung at 3 updates
    records = run(tmp_path, [*poor, *trials()], halving=True)
    assert records[poor[0].key]["rung"] == 2
    assert records[poor[0].key]["curve"]["epoch"] == [0, 1, 2]


def test_trials_cut_before_stay_cut_and_are_named(tmp_path, capsys):
    first = run(tmp_path, halving=True)
    assert capsys.readouterr().err == ""
    assert run(tmp_path) == first
    count = sum(record["status"] == "cut" for record in first.values())
    assert f"{count} of these trials were cut by an earlier search" in capsys.readouterr().err


def test_cut_ties_go_to_the_earlier_and_diverged_trials_never_pass():
    assert cut([2.0, 1.0, 1.0, 1.0], eta=2) == [1, 2]
    assert cut([math.nan, math.inf, 5.0, -math.inf], eta=2) == [2]
    assert cut([math.nan, math.inf], eta=2) == []
    assert cut([3.0], eta=3) == [0]


def test_rungs_are_checked():
    assert successive_halving(81, 27).rungs == (3, 9, 27, 81)
    for rungs in ((), (3, 1), (1, 1)):
        with pytest.raises(ValueError, match="growing"):
            Search(rungs)
    with pytest.raises(ValueError, match="eta"):
        Search((1, 2), eta=1)


def test_evaluation_points_and_whole_epochs(tmp_path):
    only = [trial(lr=0.01)]
    (half,) = run(tmp_path / "a", only, evaluate_every=5 / 3).values()
    assert half["curve"]["updates"] == [0, 5, 10, 12]
    assert half["curve"]["epoch"] == [0, 5 / 3, 10 / 3, 4]
    (often,) = run(tmp_path / "b", only, evaluate_every=1e-9).values()
    assert often["curve"]["updates"] == list(range(13))
