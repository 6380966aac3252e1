"""The learning rates of a search: a regular grid, as wide in decades for every fighter.

Where the best of any fighter lies at an end of its grid, the grids of all are extended, by as much
at both ends; so nobody has more trials or a wider search than another.
"""

from collections.abc import Mapping

from equilibrate.study.space import LogUniform

PER_DECADE = 4
EXTENSION = 2  # points added at either end: half a decade
MOST_EXTENSIONS = 2


def rates(where: LogUniform, extensions: int = 0, per_decade: int = PER_DECADE) -> list[float]:
    """Return the grid of a range, its ends among them, after a number of extensions.

    Example:
        >>> rates(LogUniform(0.01, 1.0), per_decade=2)
        [0.01, 0.03162, 0.1, 0.3162, 1.0]
        >>> rates(LogUniform(0.1, 1.0), extensions=1, per_decade=1)
        [0.001, 0.01, 0.1, 1.0, 10.0, 100.0]
    """
    more = EXTENSION * extensions
    count = round(where.decades * per_decade)
    places = (where.low * 10 ** (k / per_decade) for k in range(-more, count + more + 1))
    return [float(f"{rate:.4g}") for rate in places]


def at_an_end(best: Mapping[str, float], grids: Mapping[str, list[float]]) -> list[str]:
    """Return the fighters whose best rate is the first or last of their grid.

    Example:
        >>> at_an_end({"a": 0.1, "b": 0.1}, {"a": [0.01, 0.1, 1.0], "b": [0.1, 1.0, 10.0]})
        ['b']
    """
    return [name for name, rate in best.items() if rate in (grids[name][0], grids[name][-1])]
