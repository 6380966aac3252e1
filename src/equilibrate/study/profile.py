"""Performance profiles: how often a method is within a factor of the best one.

Dolan and Moré, 'Benchmarking optimization software with performance profiles', Mathematical
Programming 91 (2002), 201-213, section 2. With t_(p,s) the cost of solver s on problem p,

    r_(p,s) = t_(p,s) / min_s' t_(p,s'),      rho_s(tau) = |{p : r_(p,s) <= tau}| / |P|.

rho_s(1) is the share of problems on which s is the best, or one of several; rho_s(tau) for a large
tau is the share it solves at all. Here a problem is a pair (seed, target error), a cost the updates
or the seconds until the target is reached. A profile ranks a method against these others: with
another set of methods, its curve changes.
"""

import math
from collections.abc import Mapping, Sequence

from equilibrate.study.outcome import Axis, Record, cost_to


def ratios(costs: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """r_(p,s): each cost over the least on that problem; infinite where the solver failed.

    Args:
        costs: of every solver, its cost on each problem, in one order of the problems.

    Example:
        >>> ratios({"a": [10.0, math.inf], "b": [30.0, 5.0]})
        {'a': [1.0, inf], 'b': [3.0, 1.0]}
    """
    if len({len(row) for row in costs.values()}) > 1:
        raise ValueError(f"each solver needs one cost per problem; got {costs}")
    least = [min(column) for column in zip(*costs.values(), strict=True)]
    return {name: [_ratio(*pair) for pair in zip(row, least, strict=True)]
            for name, row in costs.items()}  # fmt: skip


def share(ratios_of_one: Sequence[float], tau: float) -> float:
    """rho_s(tau): the share of problems on which the ratio is at most tau.

    Example:
        >>> share([1.0, 3.0, math.inf, 1.0], 2.0)
        0.5
    """
    return sum(ratio <= tau for ratio in ratios_of_one) / len(ratios_of_one)


def steps(ratios_of_one: Sequence[float]) -> list[tuple[float, float]]:
    """The profile as its jumps: (tau, rho from there on), the first at tau = 1.

    Example:
        >>> steps([1.0, 3.0, math.inf, 1.0])
        [(1.0, 0.5), (3.0, 0.75)]
    """
    places = sorted({1.0, *(ratio for ratio in ratios_of_one if math.isfinite(ratio))})
    return [(tau, share(ratios_of_one, tau)) for tau in places]


def target_costs(
    winners: Mapping[str, Sequence[Record]], targets: Sequence[float], axis: Axis = "updates"
) -> dict[str, list[float]]:
    """t_(p,s) for every pair of a seed that all methods were trained with and a target."""
    by_seed = {name: {r["seed"]: r for r in records} for name, records in winners.items()}
    seeds = sorted(set.intersection(*map(set, by_seed.values()))) if by_seed else []
    return {
        name: [cost_to(records[seed], target, axis) for seed in seeds for target in targets]
        for name, records in by_seed.items()
    }


def performance_profile(
    winners: Mapping[str, Sequence[Record]], targets: Sequence[float], axis: Axis = "updates"
) -> dict[str, list[tuple[float, float]]]:
    """The steps of every method's profile; none where there is no seed that all have."""
    costs = {n: row for n, row in target_costs(winners, targets, axis).items() if row}
    return {name: steps(row) for name, row in ratios(costs).items()}


def _ratio(cost: float, least: float) -> float:
    if math.isinf(cost):
        return math.inf
    if least == 0:  # a target met before the first update: those that met it so are equals
        return 1.0 if cost == 0 else math.inf
    return cost / least
