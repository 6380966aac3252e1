"""Figure 4 as a picture: distances along training and against the number of probes."""

import statistics
from typing import TYPE_CHECKING, Any

from equilibrate.paper.drawing import BLUE, GREEN, VERMILION, axes
from equilibrate.paper.figure import Records
from equilibrate.paper.figure4_judging import FLOOR
from equilibrate.paper.figure4_reading import PAIRS, clean, decided, ladder_points, series, title
from equilibrate.paper.records import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

COLOURS = {
    "rmsprop_equilibration": VERMILION,
    "rmsprop_jacobi": BLUE,
    "equilibration_jacobi": GREEN,
}
MARKERS = {"rmsprop_equilibration": "s", "rmsprop_jacobi": "o", "equilibration_jacobi": "^"}
SHIFTS = {"rmsprop_equilibration": 0.0, "rmsprop_jacobi": -0.008, "equilibration_jacobi": 0.008}


def draw(probes: int, records: Records) -> "Picture":
    """Draw a row for every data set: along training, against probes, update directions."""
    picture, grid = axes(len(records), 3, (11.5, 3.7 * len(records) + 0.7), squeeze=False,
                         width_ratios=(2.2, 1.3, 1.3))  # fmt: skip
    letters = iter("abcdef")
    for row, record in zip(grid, records, strict=True):
        _training(row[0], probes, record)
        _probes(row[1], probes, record)
        _directions(row[2], probes, record)
        last = ladder_points(record)[-1]["epoch"]
        names = (f"{title(record)}, diagonals", f"epoch {last}", "updates g/D")
        for axis, name in zip(row, names, strict=True):
            axis.set_title(f"({next(letters)}) {name}")
    handles, labels = grid[0][0].get_legend_handles_labels()
    handles, labels = _with_styles(handles, labels, probes)
    picture.legend(handles, labels, loc="outside lower center", ncols=3)
    return picture  # type: ignore[no-any-return]


def _training(axis: Any, probes: int, record: Data) -> None:
    span = record["data"]["points"][-1]["epoch"]
    for pair, name in PAIRS.items():
        _band(axis, pair, series(record, "literal", pair, probes), label=name)
        _clean(axis, pair, record, SHIFTS[pair] * span)
    _floor(axis)
    axis.set(xlabel="epochs", ylabel="cosine distance", xlim=(0, 1.03 * span))
    axis.set_ylim(0, _top(record, probes))


def _top(record: Data, probes: int) -> float:
    """Return a height that shows all lines and bounds."""
    lines = [value for pair in PAIRS for _, values in series(record, "literal", pair, probes)
             for value in values]  # fmt: skip
    bounds = [high for pair in PAIRS for _, every in clean(record, pair) for _, _, high in every]
    return min(1.0, 1.05 * max([FLOOR, *lines, *bounds]))


def _band(axis: Any, pair: str, found: list[tuple[int, list[float]]], **options: Any) -> None:
    """Draw the median over seeds, and their extremes as a band."""
    epochs = [epoch for epoch, _ in found]
    middle = [statistics.median(values) for _, values in found]
    few = {"marker": MARKERS[pair], "ms": 4} if len(found) < 6 else {}
    axis.plot(epochs, middle, color=COLOURS[pair], lw=1.6, **few, **options)
    axis.fill_between(epochs, [min(values) for _, values in found],
                      [max(values) for _, values in found], color=COLOURS[pair],
                      alpha=0.2, lw=0)  # fmt: skip


def _clean(axis: Any, pair: str, record: Data, shift: float) -> None:
    """Draw the noise-free values with the bounds they lie between, medians over seeds."""
    found = [(epoch, [statistics.median(part) for part in zip(*every, strict=True)])
             for epoch, every in clean(record, pair)]  # fmt: skip
    if not found:
        return
    _free(axis, pair, [(epoch + shift, bounded) for epoch, bounded in found])


def _free(axis: Any, pair: str, found: list[tuple[float, list[float]]]) -> None:
    """Draw values with the bounds they lie between; the bounds alone where they are far apart."""
    known = [(place, bounded[0]) for place, bounded in found if decided(bounded)]
    axis.plot([place for place, _ in known], [value for _, value in known], "--", lw=1.2,
              marker=MARKERS[pair], mfc="white", ms=4.5, color=COLOURS[pair])  # fmt: skip
    for place, (_, low, high) in found:
        if high > low:
            axis.plot([place] * 2, [low, high], "-", marker="_", ms=5, color=COLOURS[pair],
                      lw=1.1, alpha=0.45)  # fmt: skip


def _probes(axis: Any, probes: int, record: Data) -> None:
    """Draw literal and noise-free distances against the number of probes at the last ladder."""
    counts = ladder_points(record)[-1]["counts"]
    for pair in PAIRS:
        numbers = [found["probes"] for found in counts]
        literal = [statistics.median(t["literal"][pair] for t in f["trials"]) for f in counts]
        axis.plot(numbers, literal, "-", marker=MARKERS[pair], ms=4, color=COLOURS[pair])
        free = [(f["probes"], [t["noise_free"][pair] for t in f["trials"]]) for f in counts]
        known = [(k * (1 + 5 * SHIFTS[pair]), [statistics.median(p) for p in zip(*v, strict=True)])
                 for k, v in free if all(None not in each for each in v)]  # fmt: skip
        _free(axis, pair, known)
    _floor(axis)
    axis.axvline(probes, color="0.8", lw=0.9, zorder=0)
    axis.set(xscale="log", xlabel="probes", ylim=(0, _top(record, probes)))
    _plain_ticks(axis, [found["probes"] for found in counts])


def _plain_ticks(axis: Any, numbers: list[int]) -> None:
    from matplotlib.ticker import FixedLocator, NullFormatter

    shown = numbers[:1]
    for number in numbers:
        if number >= (2 if len(numbers) < 5 else 4) * shown[-1]:
            shown.append(number)
    axis.xaxis.set_major_locator(FixedLocator(shown))
    axis.set_xticks(shown, [f"{number:,}" for number in shown])
    axis.xaxis.set_minor_locator(FixedLocator([]))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _directions(axis: Any, probes: int, record: Data) -> None:
    for pair in PAIRS:
        _band(axis, pair, series(record, "directions", pair, probes))
    plain = series(record, "directions", "rmsprop_gradient", probes)
    axis.plot([epoch for epoch, _ in plain], [statistics.median(v) for _, v in plain], ":",
              color="0.4", lw=1.4)  # fmt: skip
    epoch, values = plain[len(plain) // 2]
    axis.annotate("g/D$_R$ - g", (epoch, statistics.median(values)), (0, 9), fontsize=8.5,
                  textcoords="offset points", color="0.3", ha="center")  # fmt: skip
    axis.locator_params(axis="x", nbins=6, integer=True)
    axis.set(xlabel="epochs", ylim=(0, 1.02), xlim=(0, 1.03 * plain[-1][0]))


def _floor(axis: Any) -> None:
    axis.axhline(FLOOR, color="0.5", lw=0.9, ls=":", zorder=0)


def _with_styles(handles: list[Any], labels: list[str], probes: int) -> tuple[list[Any], list[str]]:
    """Add to the legend what line styles mean."""
    from matplotlib.lines import Line2D

    styles = {
        f"{probes} probes{', as in the paper' if probes == 100 else ''}": {"ls": "-"},
        "noise-free, bars: bounds": {"ls": "--", "marker": "o", "mfc": "white", "ms": 4.5},
        "noise alone": {"ls": ":"},
    }
    extra = [Line2D([], [], color="0.4", **style) for style in styles.values()]  # type: ignore[arg-type]
    # Columns are filled downwards: each pair of diagonals above one style.
    both = [each for pair in zip(handles, extra, strict=True) for each in pair]
    return both, [each for pair in zip(labels, styles, strict=True) for each in pair]
