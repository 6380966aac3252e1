"""What ESGD adds to SGD by how often it probes, from the times of the two kinds of iterations."""

from statistics import median
from typing import Any

FREQUENCIES = (1, 2, 5, 10, 20, 50, 100)


def overhead(found: dict[str, Any], every: int) -> tuple[float, float]:
    """Return iteration over SGD's at a frequency, from the two kinds; and what is expected."""
    time = {name: median(times) for name, times in found["times"].items()}
    mean = (time["probing"] + (every - 1) * time["ordinary"]) / every
    cost = (time["probing"] - time["ordinary"]) / time["gradient"]
    return mean / time["SGD"], 1 + cost / every
