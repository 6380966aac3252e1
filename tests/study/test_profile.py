"""Performance profiles: hand-made cases with known shares, and the laws of Dolan and Moré."""

import math

import pytest

from equilibrate.study.profile import performance_profile, ratios, share, steps, target_costs
from tests.study.synthetic import record, study

NEVER = math.inf

# Costs by solver, and the profile worked out by hand.
CASES = {
    "one is always best": (
        {"a": [1.0, 2.0], "b": [2.0, 8.0]},
        {"a": [(1.0, 1.0)], "b": [(1.0, 0.0), (2.0, 0.5), (4.0, 1.0)]},
    ),
    "each is best once": (
        {"a": [10.0, 30.0], "b": [20.0, 10.0]},
        {"a": [(1.0, 0.5), (3.0, 1.0)], "b": [(1.0, 0.5), (2.0, 1.0)]},
    ),
    "a tie counts for both": (
        {"a": [5.0, 5.0], "b": [5.0, 10.0]},
        {"a": [(1.0, 1.0)], "b": [(1.0, 0.5), (2.0, 1.0)]},
    ),
    "a failure never counts": (
        {"a": [5.0, NEVER], "b": [NEVER, NEVER]},
        {"a": [(1.0, 0.5)], "b": [(1.0, 0.0)]},
    ),
    "met before the first update": (
        {"a": [0.0], "b": [0.0], "c": [10.0]},
        {"a": [(1.0, 1.0)], "b": [(1.0, 1.0)], "c": [(1.0, 0.0)]},
    ),
    "alone": ({"a": [3.0, 4.0, NEVER, 1.0]}, {"a": [(1.0, 0.75)]}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_profile_is_the_one_worked_out_by_hand(case):
    costs, expected = CASES[case]
    assert {name: steps(row) for name, row in ratios(costs).items()} == expected


@pytest.mark.parametrize("case", CASES)
def test_shares_rise_and_end_at_the_share_that_is_solved(case):
    costs, _ = CASES[case]
    for name, row in ratios(costs).items():
        shares = [share(row, tau) for tau in (1, 1.5, 2, 3, 4, 1e9)]
        assert shares == sorted(shares)
        assert shares[-1] == sum(map(math.isfinite, row)) / len(row)
        assert max(shares) <= sum(map(math.isfinite, costs[name])) / len(row)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("factor", [2.0, 1024.0])
def test_the_unit_of_cost_does_not_matter(case, factor):
    costs, _ = CASES[case]
    scaled = {name: [factor * cost for cost in row] for name, row in costs.items()}
    assert ratios(scaled) == ratios(costs)


def test_some_method_is_best_on_every_problem_that_is_solved():
    records = study(["sgd", "adam", "esgd"], seeds=5)
    winners = {
        name: [r for r in records if r["method"] == name and r["seed"] > 0]
        for name in ("sgd", "adam", "esgd")
    }
    of = performance_profile(winners, [4.0, 6.0, 10.0])
    assert sum(steps_of[0][1] for steps_of in of.values()) >= 1


def test_a_solver_needs_a_cost_for_every_problem():
    with pytest.raises(ValueError, match="one cost per problem"):
        ratios({"a": [1.0], "b": [1.0, 2.0]})


def test_costs_are_read_at_seeds_that_all_methods_have_and_at_every_target():
    winners = {
        "sgd": [record("sgd", [9, 4, 2, 1], seed=seed) for seed in (0, 1)],
        "adam": [record("adam", [9, 8, 4, 3], seed=seed, seconds=2.0) for seed in (0, 2)],
    }
    assert target_costs(winners, [4, 2]) == {"sgd": [10, 20], "adam": [20, NEVER]}
    assert target_costs(winners, [4], "seconds") == {"sgd": [1], "adam": [4]}


def test_without_a_common_seed_there_is_no_profile():
    winners = {"sgd": [record("sgd", [2, 1])], "adam": [record("adam", [2, 1], seed=1)]}
    assert performance_profile(winners, [1]) == {}
