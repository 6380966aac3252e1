"""The panels of a comparison's picture, each a function of matplotlib axes and of records."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from equilibrate.study.outcome import SEARCH_SEED, Axis, Record, conditions, ending
from equilibrate.study.summary import Profile

_GREY = "#777777"


@dataclass(frozen=True)
class Look:
    """How a method looks in every panel."""

    colour: str
    dashes: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """The arguments of a line."""
        return {"color": self.colour, "linestyle": self.dashes}


Looks = Mapping[str, Look]
Winners = Mapping[str, Sequence[Record]]


def curves(
    axes: Any,
    axis: Axis,
    records: Sequence[Record],
    winners: Winners,
    looks: Looks,
    target: float | None,
) -> None:
    """Error against updates or seconds: winners thick, with a band over seeds; others pale."""
    for record in _others(axis, records, winners):
        curve, colour = record["curve"], looks[record["method"]].colour
        axes.plot(curve[axis], curve["error"], color=colour, linewidth=0.6, alpha=0.25)
    for method, rows in winners.items():
        _winner(axes, axis, rows, looks[method])
    _scale_errors(axes, records, winners, target)
    if target is not None:
        _mark_target(axes, target)
    name, unit = ("updates", "updates") if axis == "updates" else ("time", "seconds")
    axes.set(title=f"Error against {name}", xlabel=unit, ylabel="error")
    axes.set_xlim(left=0)


def profile(axes: Any, steps_of: Profile, looks: Looks) -> None:
    """The performance profile by updates."""
    title = "Performance profile"
    if not steps_of:
        say(axes, title, "there is no seed that every method was trained with")
        return
    end = max(1.1 * max(tau for steps in steps_of.values() for tau, _ in steps), 2.0)
    for method, steps in steps_of.items():
        taus = [*(tau for tau, _ in steps), end]
        shares = [*(share for _, share in steps), steps[-1][1]]
        axes.plot(taus, shares, drawstyle="steps-post", **looks[method].line)
    axes.set(title=title, xlabel="updates, as a multiple of the best method's", xlim=(1, end),
             ylabel="share of targets reached", ylim=(-0.03, 1.03))  # fmt: skip
    _log(axes, "x", 1, end)


def rates(axes: Any, records: Sequence[Record], winners: Winners, looks: Looks) -> None:
    """Final error against learning rate, all trials of the search."""
    title = "Final error against learning rate"
    searched = [r for r in records if r["seed"] == SEARCH_SEED and r["settings"].get("lr")]
    if not searched:
        say(axes, title, "there is no learning rate among the settings")
        return
    best = {id(rows[0]) for rows in winners.values()}
    for record in searched:
        _rate(axes, record, looks[record["method"]], best=id(record) in best)
    ends = [r["final_error"] for r in searched if not _lost(r)]
    if ends and min(ends) > 0:
        _log(axes, "y", min(ends), max(ends))
    places = [r["settings"]["lr"] for r in searched]
    _log(axes, "x", min(places), max(places))
    axes.set(title=title, ylabel="error", xlabel=f"learning rate ({_marks(searched)})")


def say(axes: Any, title: str, text: str) -> None:
    """Words in the place of a panel that cannot be drawn."""
    axes.set(title=title, xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.text(0.0, 0.95, text, transform=axes.transAxes, va="top", color=_GREY, wrap=True)


def _others(axis: Axis, records: Sequence[Record], winners: Winners) -> list[Record]:
    """The trials that did not win; against time, those timed under the winners' conditions."""
    won = {id(record) for rows in winners.values() for record in rows}
    others = [record for record in records if id(record) not in won]
    if axis == "updates" or not winners:
        return others
    timed = conditions(next(iter(winners.values()))[0])
    return [record for record in others if conditions(record) == timed]


def _winner(axes: Any, axis: Axis, rows: Sequence[Record], look: Look) -> None:
    places = [statistics.median(column) for column in _columns(rows, axis)]
    errors = _columns(rows, "error")
    middle = [statistics.median(column) for column in errors]
    axes.plot(places, middle, zorder=3, **look.line)
    if len(rows) > 1:
        low, high = [min(column) for column in errors], [max(column) for column in errors]
        axes.fill_between(places, low, high, color=look.colour, alpha=0.2, linewidth=0)


def _columns(rows: Sequence[Record], name: str) -> list[list[float]]:
    """The values of all seeds, point by point; a seed that diverged has fewer points."""
    columns = zip_longest(*(row["curve"][name] for row in rows))
    return [[value for value in column if value is not None] for column in columns]


def _mark_target(axes: Any, target: float) -> None:
    low, high = axes.get_ylim()
    if not low <= target <= high:
        return
    axes.axhline(target, color=_GREY, linewidth=0.7, linestyle=":", zorder=1)
    # Beside the panel, where no curve runs.
    axes.annotate("target", (1.0, target), xycoords=("axes fraction", "data"), xytext=(2, 0),
                  textcoords="offset points", va="center", color=_GREY,
                  fontsize="small")  # fmt: skip


def _scale_errors(
    axes: Any, records: Sequence[Record], winners: Winners, target: float | None
) -> None:
    """A trial on its way to infinity must not press the others flat: it leaves at the top.

    A target that is nearly reached is in view, one that is out of reach is not.
    """
    starts = [error for record in records for error in record["curve"]["error"][:1]]
    kept = [row for rows in winners.values() for row in rows if not _lost(row)]
    won = [error for row in kept for error in row["curve"]["error"]]
    every = [error for record in records for error in record["curve"]["error"]]
    if not every:
        return
    top, bottom = max(starts + won), min(every)
    if target is not None and bottom / 10 <= target <= 10 * top:
        top, bottom = max(top, target), min(bottom, target)
    if 0 < bottom < top:
        axes.set_ylim(bottom * (bottom / top) ** 0.05, top * (top / bottom) ** 0.05)
        _log(axes, "y", bottom, top)
    elif top > bottom:
        axes.set_ylim(bottom - 0.05 * (top - bottom), top + 0.05 * (top - bottom))


def _lost(record: Record) -> bool:
    return ending(record) == "diverged"


def _marks(records: Sequence[Record]) -> str:
    marks = [f"large: best at seed {SEARCH_SEED}"]
    marks += ["hollow: cut"] if any(r["status"] == "cut" for r in records) else []
    marks += ["×: diverged"] if any(map(_lost, records)) else []
    return ", ".join(marks)


def _rate(axes: Any, record: Record, look: Look, *, best: bool) -> None:
    rate = record["settings"]["lr"]
    if _lost(record):
        # At the top whatever the scale: the last finite error of a diverged trial means little.
        axes.plot([rate], [1.0], "x", color=look.colour, transform=axes.get_xaxis_transform(),
                  clip_on=False, markersize=5)  # fmt: skip
        return
    face = "none" if record["status"] == "cut" else look.colour
    size, strength = (7, 1.0) if best else (4, 0.55)
    axes.plot([rate], [record["final_error"]], look.marker, color=look.colour, markersize=size,
              markerfacecolor=face, alpha=strength, zorder=3)  # fmt: skip


def _log(axes: Any, which: str, low: float, high: float) -> None:
    """A logarithmic axis; the shorter its range, the more of its ticks are labelled."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    if high / low < 4:
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], min_n_ticks=4))
    elif high / low < 100:
        axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5) if high / low < 20 else (1, 2, 5)))
    if math.log10(high / low) < 2:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
