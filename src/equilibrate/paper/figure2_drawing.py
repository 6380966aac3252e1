"""Figure 2 as a picture: histograms at the main size, medians at every size; records alone."""

import math
from typing import TYPE_CHECKING, Any

from equilibrate.paper.drawing import BLACK, BLUE, GREEN, ORANGE, VERMILION, axes
from equilibrate.paper.figure import Records
from equilibrate.paper.figure2_claims import METHODS, problems, reductions, sizes
from equilibrate.paper.intervals import bootstrap_median

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

COLOURS = {"jacobi": BLUE, "equilibration": VERMILION, "gauss_newton": GREEN,
           "row_column": ORANGE, "absolute": BLACK}  # fmt: skip
MARKERS = {"jacobi": "o", "equilibration": "s", "gauss_newton": "^", "row_column": "D",
           "absolute": "x"}  # fmt: skip
_BINS_PER_DECADE = 8


def draw(records: Records) -> "Picture":
    """Draw the convex case on the left, the non-convex one on the right."""
    picture, panels = axes(2, 2, (10, 7.4), height_ratios=(3, 2.2))
    for column, case in enumerate(("convex", "non-convex")):
        _histograms(panels[0][column], records, case)
        _medians(panels[1][column], records, case)
        panels[0][column].set_title(f"({'ab'[column]}) {case}, main size")
        panels[1][column].set_title(f"({'cd'[column]}) {case}, every size")
    panels[0][0].set_ylabel("problems")
    handles, labels = panels[0][1].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=len(METHODS))
    return picture  # type: ignore[no-any-return]


def _histograms(axis: Any, records: Records, case: str) -> None:
    found = problems(records, "main", case)
    everything = {method: reductions(found, method) for method in METHODS}
    low = math.log10(min(min(v) for v in everything.values()))
    high = math.log10(max(max(v) for v in everything.values()))
    per_decade = _BINS_PER_DECADE if high - low > 4 else 3 * _BINS_PER_DECADE
    first, last = math.floor(low * per_decade), math.floor(high * per_decade) + 1
    edges = [10 ** (i / per_decade) for i in range(first, last + 1)]
    for method, values in everything.items():
        axis.hist(values, edges, histtype="stepfilled", color=COLOURS[method], alpha=0.18)
        axis.hist(values, edges, histtype="step", color=COLOURS[method], lw=1.6,
                  ls="--" if method == "gauss_newton" else "-", label=METHODS[method])  # fmt: skip
    axis.set(xscale="log", xlabel="condition number, after / before (lower is better)")
    axis.axvline(1, color="0.6", lw=0.8, ls=":")


def _medians(axis: Any, records: Records, case: str) -> None:
    names = sizes(records)
    for place, method in enumerate(METHODS):
        shift = (place - (len(METHODS) - 1) / 2) * 0.13
        for row, size in enumerate(names):
            median = bootstrap_median(reductions(problems(records, size, case), method))
            axis.plot([median.low, median.high], [row + shift] * 2, color=COLOURS[method], lw=1.6)
            axis.plot(median.value, row + shift, MARKERS[method], color=COLOURS[method], ms=5)
    axis.set_yticks(range(len(names)), names)
    axis.set(xscale="log", xlabel="median of after / before", ylim=(len(names) - 0.5, -0.5))
    axis.axvline(1, color="0.6", lw=0.8, ls=":")
