"""What Figure 4's records hold, by data set, pair of diagonals, number of probes and seed."""

from typing import Any

from equilibrate.paper.figure import Records
from equilibrate.paper.records import Data

PAIRS = {
    "rmsprop_equilibration": "RMSProp - equilibration",
    "rmsprop_jacobi": "RMSProp - Jacobi",
    "equilibration_jacobi": "equilibration - Jacobi",
}

# Bounds of a noise-free distance that are farther apart than this decide nothing.
DECIDED = 0.15


def task(records: Records, problem: str) -> Data | None:
    """Return the record of a data set, or None where there is none."""
    return next((record for record in records if record["task"] == problem), None)


def title(record: Data) -> str:
    """Return the name of a data set as figures and texts give it."""
    return str(record["data"]["name"])


def at(point: Data, probes: int) -> list[Data]:
    """Return what was measured at a point with so many probes, seed by seed."""
    return next(found["trials"] for found in point["counts"] if found["probes"] == probes)


def series(record: Data, table: str, pair: str, probes: int) -> list[tuple[int, list[float]]]:
    """Return (epoch, a value for every seed) of all points."""
    points = record["data"]["points"]
    return [(p["epoch"], [trial[table][pair] for trial in at(p, probes)]) for p in points]


def most(point: Data) -> int:
    """Return the largest number of probes at a point."""
    return int(point["counts"][-1]["probes"])


def most_anywhere(record: Data) -> int:
    """Return the largest number of probes at any point."""
    return max(most(point) for point in record["data"]["points"])


def ladder_points(record: Data) -> list[Data]:
    """Return the points at which the number of probes was varied."""
    return [point for point in record["data"]["points"] if len(point["counts"]) > 1]


def clean(record: Data, pair: str) -> list[tuple[int, list[list[float]]]]:
    """Return (epoch, [value, low, high] for every seed) by the most probes, where they are known.

    A seed whose diagonal is lost in noise is left out.
    """
    found = []
    for point in ladder_points(record):
        every = [trial["noise_free"][pair] for trial in at(point, most(point))]
        found.append((point["epoch"], [each for each in every if None not in each]))
    return [(epoch, values) for epoch, values in found if values]


def decided(values: list[float]) -> bool:
    """Tell whether the bounds of a noise-free distance are near enough to each other."""
    _, low, high = values
    return high - low <= DECIDED


def curvatures(record: Data) -> list[tuple[int, list[dict[str, Any]]]]:
    """Return (epoch, extreme curvatures of every seed)."""
    points = record["data"]["points"]
    return [(point["epoch"], point["curvature"]) for point in points if "curvature" in point]


def largest_literal(record: Data) -> float:
    """Return the largest distance between diagonals at any point, count and seed."""
    counts = [found for point in record["data"]["points"] for found in point["counts"]]
    trials = [trial for found in counts for trial in found["trials"]]
    return float(max(max(trial["literal"].values()) for trial in trials))


def noise_shares(record: Data, probes: int | None = None) -> list[float]:
    """Return the share of noise in Jacobi's square, by ladder point and seed.

    With the most probes where none are given.
    """
    points = [at(point, probes or most(point)) for point in ladder_points(record)]
    return [min(1.0, trial["noise_share"]) for trials in points for trial in trials]
