"""The robustness figure as a picture: six small panels, one error axis a row; records alone."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from equilibrate.paper.drawing import BLACK, BLUE, GREEN, GREY, SKY, VERMILION, axes
from equilibrate.paper.figure import Records
from equilibrate.paper.robustness_claims import Curve, Curves, cost_ratios
from equilibrate.paper.robustness_points import PANELS, SERIES, Settings, errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

LOOKS: dict[str, dict[str, Any]] = {
    "paper": {"color": BLUE, "marker": "o"},
    "shipped": {"color": VERMILION, "marker": "s"},
    "literal": {"color": BLACK, "marker": "v", "ls": ":"},
    "row-column": {"color": GREEN, "marker": "D", "ls": "--"},
    "rmsprop": {"color": GREY, "marker": "^"},
    "second": {"color": SKY, "marker": "o", "ls": "--"},
    "fast": {"color": BLUE, "marker": "o", "ls": "--", "mfc": "white"},
}
_KINDS = {"gaussian": "normal", "rademacher": "sign"}
_LOGARITHMIC = ("damping", "rate")


def draw(chosen: Settings, records: Records) -> "Picture":
    """Draw every panel; what diverged stands as a cross at the top."""
    picture, grid = axes(2, 3, (10.5, 6.4), sharey="row")
    found = errors(chosen, records)
    panels = dict(zip(PANELS, grid.flat, strict=True))
    for row in (list(PANELS)[:3], list(PANELS)[3:]):
        _row({panel: panels[panel] for panel in row}, found)
    for letter, (panel, axis) in zip("abcdef", panels.items(), strict=True):
        axis.set_title(f"({letter}) {PANELS[panel]}")
    _costs(panels["every"], records)
    _legend(picture, grid, chosen)
    return picture  # type: ignore[no-any-return]


def _row(panels: dict[str, Any], found: Curves) -> None:
    """Draw panels on one error axis: the second row magnifies what the first one dwarfs."""
    low, top, high = _limits({key: curve for key, curve in found.items() if key[0] in panels})
    for panel, axis in panels.items():
        mine = {series: curve for (name, series), curve in found.items() if name == panel}
        axis.set(yscale="log", ylim=(low, high))
        _panel(axis, panel, mine, top)
    first = next(iter(panels.values()))
    first.set_ylabel("final training squared error")
    _plain_ticks(first.yaxis, _round_numbers(low, high))


def _limits(found: Curves) -> tuple[float, float, float]:
    """Return the bottom of the axis, the level of crosses above all finite errors, and the top."""
    every = [error for curve in found.values() for _, error in curve]
    finite = [error for error in every if math.isfinite(error)] or [1.0]
    low, high = min(finite) * 0.85, max(finite) * 1.3
    return (low, high, high) if len(finite) == len(every) else (low, high * 1.15, high * 1.4)


def _panel(axis: Any, panel: str, mine: dict[str, Curve], top: float) -> None:
    logarithmic = panel in _LOGARITHMIC
    values = sorted({x for curve in mine.values() for x, _ in curve}, key=_order)
    places = {x: x if logarithmic else place for place, x in enumerate(values)}
    for series, curve in mine.items():
        _series(axis, series, [(places[x], e) for x, e in curve], top, panel != "vectors")
    if logarithmic:
        axis.set_xscale("log")
        if panel == "rate":
            _plain_ticks(axis.xaxis, values)
    else:
        axis.set_xticks(range(len(values)), [_named(x) for x in values])
        axis.set_xlim(-0.5, max(1, len(values)) - 0.5)


def _order(x: Any) -> tuple[float, str]:
    """Sort by number; no forgetting at all comes last, names by themselves."""
    return (math.inf, "") if x is None else (0.0, x) if isinstance(x, str) else (float(x), "")


def _named(x: Any) -> str:
    return "none" if x is None else _KINDS.get(x, f"{x:g}" if isinstance(x, int | float) else x)


def _series(axis: Any, series: str, curve: Curve, top: float, joined: bool) -> None:
    look = {"lw": 1.4, "ms": 5, **LOOKS[series], **({} if joined else {"ls": "none"})}
    curve = sorted(curve)
    if not joined:  # two methods at the same value: side by side
        curve = [(x + (0.12 if series == "shipped" else -0.12), error) for x, error in curve]
    finite = [place for place, (_, error) in enumerate(curve) if math.isfinite(error)]
    shown = [(x, min(error, top)) for x, error in curve]
    axis.plot(*zip(*shown, strict=True), label=series, markevery=finite, **look)
    for x, error in curve:
        if math.isinf(error):
            axis.plot(x, top, "x", color=look["color"], ms=9, mew=2, zorder=5)


def _plain_ticks(axis: Any, ticks: Sequence[float]) -> None:
    """Label a logarithmic axis by a few plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(FixedLocator([]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _round_numbers(low: float, high: float) -> list[float]:
    """Return round numbers between two, more of them to a decade where there is less than one."""
    steps = (1, 2, 5) if high / low > 10 else (1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4, 5, 6, 8)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    return [v for d in decades for s in steps if low <= (v := s * 10.0**d) <= high]


def _costs(axis: Any, records: Records) -> None:
    """Write what an update costs, in SGD's, above each interval between probes."""
    ratios = cost_ratios(records)
    ticks = [label.get_text() for label in axis.get_xticklabels()]
    for place, tick in enumerate(ticks):
        if tick in ratios:
            axis.text(place, 0.97, f"x {ratios[tick].value:.2f}", ha="center", va="top",
                      transform=axis.get_xaxis_transform(), fontsize=9)  # fmt: skip
    if ratios:
        axis.text(0.02, 0.86, "time of an update / SGD's", transform=axis.transAxes, va="top",
                  fontsize=8.5, color="0.35")  # fmt: skip


def _legend(picture: Any, grid: Any, chosen: Settings) -> None:
    handles: dict[str, Any] = {}
    for axis in grid.flat:
        for handle, series in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(series, handle)
    named = {
        **SERIES,
        "second": f"{SERIES['paper']}, {chosen.second.name}" if chosen.second else "",
        "paper": f"{SERIES['paper']}, lr {chosen.task.rate:g}",
        "fast": f"{SERIES['paper']}, lr {chosen.fast:g}",
    }
    shown = [series for series in LOOKS if series in handles]
    picture.legend([handles[s] for s in shown], [named[s] for s in shown],
                   loc="outside lower center", ncols=4, fontsize=9)  # fmt: skip
    quick = ", quick" if chosen.quick else ""
    picture.suptitle(f"{chosen.task.name}, {chosen.task.epochs} epochs{quick}", fontsize=11)
