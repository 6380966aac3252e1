"""The picture of a comparison: learning curves, performance profile, learning rates.

matplotlib is imported only where something is drawn: records are read without it.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from equilibrate.study import panels
from equilibrate.study.looks import STYLE, require_drawing
from equilibrate.study.methods import Method
from equilibrate.study.outcome import Record, comparable, judged
from equilibrate.study.summary import Summary, winners_of
from equilibrate.study.table import many

# Okabe and Ito's palette, told apart by every kind of colour vision; yellow is too pale for lines.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: Sequence[Any] = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)))  # one more style a round of colours
_MARKERS = ("o", "s", "^", "D", "v", "P", "*")


def draw(
    records: Sequence[Record],
    methods: Sequence[Method],
    summary: Summary,
    stem: Path,
    *,
    size: tuple[float, float] = (10.5, 8.0),
) -> list[Path]:
    """Draw a comparison as `stem`.png and `stem`.svg; return the paths.

    Args:
        records: of the study.
        methods: that were compared; their order gives the colours.
        summary: of the same records.
        stem: path without the ending.
        size: in inches.
    """
    require_drawing()
    with style(size):
        picture = figure(records, methods, summary, size)
        paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
        picture.savefig(paths[0], dpi=150)
        picture.savefig(paths[1], metadata={"Date": None})
    return paths


def style(size: tuple[float, float]) -> AbstractContextManager[None]:
    """Our style while the context lasts; letters and lines fit the size."""
    import matplotlib

    font = 10 if size[0] >= 9 else 7.5
    sizes: Any = {"font.size": font, "axes.titlesize": font + 0.5, "lines.linewidth": font / 5}
    return matplotlib.rc_context({**STYLE, **sizes})


def figure(
    records: Sequence[Record],
    methods: Sequence[Method],
    summary: Summary,
    size: tuple[float, float],
) -> Any:
    """The matplotlib figure of a comparison, without a window or global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(picture)
    (by_updates, by_time), (profile, rates) = picture.subplots(2, 2)
    looks = _looks(methods)
    shown = judged(r for r in records if r["method"] in looks)
    winners = winners_of(shown, methods)
    panels.curves(by_updates, "updates", shown, winners, looks, summary.target)
    timed, reason = comparable(winners)
    if timed:
        panels.curves(by_time, "seconds", shown, timed, looks, summary.target)
    else:
        panels.say(by_time, "Error against time", f"left out: {reason}")
    panels.profile(profile, summary.profile, looks)
    panels.rates(rates, shown, winners, looks)
    picture.suptitle(_literally(_title(summary)), x=0.01, ha="left", fontsize="x-large")
    _legend(picture, methods, looks)
    return picture


def _looks(methods: Sequence[Method]) -> dict[str, panels.Look]:
    count = len(_COLOURS)
    return {
        method.name: panels.Look(
            _COLOURS[place % count],
            _DASHES[place // count % len(_DASHES)],
            _MARKERS[(place + place // count) % len(_MARKERS)],
        )
        for place, method in enumerate(methods)
    }


def _literally(name: str) -> str:
    """A name of the user's as it is: between dollar signs matplotlib would look for mathematics."""
    return name.replace("$", r"\$")


def _title(summary: Summary) -> str:
    seeds = {seed for outcome in summary.outcomes for seed in outcome.seeds}
    over = f", {len(seeds)} seeds" if len(seeds) > 1 else ""
    return f"{summary.problem}: {many(summary.epochs, 'epoch')}{over}"


def _legend(picture: Any, methods: Sequence[Method], looks: Mapping[str, panels.Look]) -> None:
    """Below the panels, where it covers nothing, in as few and as even rows as fit."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker=looks[method.name].marker, markersize=4.5,
               label=_literally(method.label or method.name), **looks[method.name].line)
        for method in methods
    ]  # fmt: skip
    for rows in range(1, len(handles) + 1):
        columns = math.ceil(len(handles) / rows)
        legend = picture.legend(
            handles=handles, loc="outside lower center", ncols=columns, handlelength=3
        )
        if columns == 1 or legend.get_window_extent().width < picture.bbox.width:
            break
        legend.remove()
