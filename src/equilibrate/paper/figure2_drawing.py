"""Figure 2 as a picture: histograms at the main size, medians at every size; records alone.

Each method has a strip of its own, so that no histogram hides another. |H| has its own scale: it is
so far to the left that the diagonals would be one bar on a common one.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from equilibrate.paper.drawing import BLACK, BLUE, GREEN, ORANGE, VERMILION, axes
from equilibrate.paper.figure import Records
from equilibrate.paper.figure2_claims import METHODS, problems, reductions, sizes
from equilibrate.paper.intervals import bootstrap_median

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

COLOURS = {"jacobi": BLUE, "equilibration": VERMILION, "gauss_newton": GREEN,
           "row_column": ORANGE, "absolute": BLACK}  # fmt: skip
MARKERS = {"jacobi": "o", "equilibration": "s", "gauss_newton": "^", "row_column": "D"}
DIAGONALS = tuple(MARKERS)
_BINS = 36


def draw(records: Records) -> "Picture":
    """Draw the convex case on the left, the non-convex one on the right."""
    picture, panels = axes(6, 2, (9.6, 9.4), height_ratios=(1, 1, 1, 1, 1, 3.4))
    for column, case in enumerate(("convex", "non-convex")):
        strips = [row[column] for row in panels[:5]]
        count = _strips(strips[:4], problems(records, "main", case))
        _gold_standard(strips[4], problems(records, "main", case))
        _medians(panels[5][column], records, case)
        strips[0].set_title(f"({'ab'[column]}) {case}: {count} problems of the main size")
        panels[5][column].set_title(f"({'cd'[column]}) {case}: medians at every size")
    panels[2][0].set_ylabel("number of problems")
    handles, labels = panels[5][1].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=len(DIAGONALS))
    return picture  # type: ignore[no-any-return]


def log_edges(values: Sequence[float], bins: int = _BINS) -> list[float]:
    """Return the edges of equal bins on a log axis, with some room around the values."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max(0.05 * (high - low), 0.02)
    width = (high - low + 2 * room) / bins
    return [10 ** (low - room + i * width) for i in range(bins + 1)]


def _strips(strips: Sequence[Any], found: Sequence[dict[str, Any]]) -> int:
    """Draw one histogram for each diagonal on a common scale."""
    everything = {method: reductions(found, method) for method in DIAGONALS}
    edges = log_edges([*(v for values in everything.values() for v in values), 1.0])
    tallest = 0.0
    for axis, (method, values) in zip(strips, everything.items(), strict=True):
        tallest = max(tallest, *_histogram(axis, method, values, edges))
        axis.axvline(1, color="0.5", lw=0.9, ls=":")
    for axis in strips:
        axis.set(ylim=(0, 1.15 * tallest), xlim=(edges[0], edges[-1]))
        _few_ticks(axis)
    for axis in strips[:-1]:
        axis.tick_params(axis="x", which="both", labelbottom=False)
    strips[-1].set_xlabel("condition number after / before (lower is better)")
    return len(found)


def _gold_standard(axis: Any, found: Sequence[dict[str, Any]]) -> None:
    values = reductions(found, "absolute")
    tallest = max(_histogram(axis, "absolute", values, log_edges(values)))
    axis.set_ylim(0, 1.8 * tallest)  # room for the text above the bars
    _few_ticks(axis)
    axis.set_xlabel("after / before, gold standard, on its own scale")


def _histogram(axis: Any, method: str, values: list[float], edges: list[float]) -> list[float]:
    heights = axis.hist(values, edges, color=COLOURS[method], alpha=0.85)[0]
    axis.set_xscale("log")
    axis.locator_params(axis="y", nbins=3, integer=True)
    middle = bootstrap_median(values).value
    axis.plot(middle, 0, "^", color=BLACK, ms=5, clip_on=False, zorder=5)
    left = middle > math.sqrt(edges[0] * edges[-1])
    axis.text(0.01 if left else 0.99, 0.93, f"{METHODS[method]}\nmedian {middle:.2g}",
              transform=axis.transAxes, va="top", ha="left" if left else "right",
              fontsize=9)  # fmt: skip
    return [float(height) for height in heights]


def _few_ticks(axis: Any) -> None:
    """Label a log axis that spans little more than a decade by a few plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

    low, high = axis.get_xlim()
    axis.xaxis.set_minor_formatter(NullFormatter())
    if high / low < 20:
        ticks = [t for t in MaxNLocator(5).tick_values(low, high) if low <= t <= high]
        axis.xaxis.set_major_locator(FixedLocator(ticks))
        axis.xaxis.set_minor_locator(FixedLocator([]))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))


def _medians(axis: Any, records: Records, case: str) -> None:
    names = sizes(records)
    for place, method in enumerate(DIAGONALS):
        shift = (place - (len(DIAGONALS) - 1) / 2) * 0.17
        for row, size in enumerate(names):
            median = bootstrap_median(reductions(problems(records, size, case), method))
            axis.plot([median.low, median.high], [row + shift] * 2, color=COLOURS[method], lw=1.8)
            axis.plot(median.value, row + shift, MARKERS[method], color=COLOURS[method], ms=5.5,
                      label=METHODS[method] if row == 0 else None)  # fmt: skip
    axis.set_yticks(range(len(names)), names)
    axis.set(xscale="log", xlabel="median of after / before, 95% interval",
             ylim=(len(names) - 0.4, -0.6))  # fmt: skip
    axis.axvline(1, color="0.5", lw=0.9, ls=":")
    _few_ticks(axis)
