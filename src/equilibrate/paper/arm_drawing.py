"""Learning curves of arms drawn: error against training and against time, one column a task."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from equilibrate.paper.arm_records import Arm
from equilibrate.paper.drawing import axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

TITLES = {
    "mnist": "MNIST",
    "mnist-linear": "MNIST, linear code",
    "curves-like": "CURVES-like (not CURVES)",
    "curves-like-linear": "CURVES-like (not CURVES), linear code",
}

Look = tuple[str, str, float]  # colour, line and width
_THICK, _THIN = 1.6, 0.8
_ACROSS = 2  # tasks side by side: more are too small on a page


@dataclass(frozen=True)
class Column:
    """One task: its arms, and the seconds of an update of those that were timed."""

    task: str
    arms: Mapping[str, Arm]
    seconds: Mapping[str, float] = field(default_factory=dict)


def draw_columns(
    columns: Sequence[Column],
    colours: Mapping[str, str],
    axis: Literal["epochs", "updates"],
    dashed: Collection[str] = (),
) -> "Picture":
    """Draw the winners' medians over seeds with a band from the best to the worst seed.

    Below, the same against time, where the time of an update is recorded for any task. Two tasks
    stand side by side, others below.
    """
    each = 1 + any(column.seconds for column in columns)
    across = min(len(columns), _ACROSS)
    rows = each * -(-len(columns) // across)
    picture, grid = axes(rows, across, (5.2 * across + 0.6, 3.6 * rows), squeeze=False)
    for panels, column in zip(_panels(grid, each), columns, strict=False):
        looks = _looks(column, colours, dashed)
        for name, arm in column.arms.items():
            scale = arm.updates_per_epoch if axis == "updates" else 1.0
            _curve(panels[0], arm, scale, looks[name])
        _dress(panels[0], TITLES[column.task], axis)
        for below in panels[1:]:
            _against_time(below, column, looks)
    for row in grid:
        row[0].set_ylabel("training squared error")
    for panels in _panels(grid, each)[len(columns) :]:
        for panel in panels:
            panel.remove()
    shown = _legend(columns, colours, dashed)
    picture.legend(handles=shown, loc="outside lower center", ncols=1 + across, fontsize=9)
    drawn: Picture = picture
    return drawn


def _panels(grid: Sequence[Sequence[Any]], each: int) -> list[list[Any]]:
    """Return the panels of every task, one below the other, task by task."""
    blocks = [grid[row : row + each] for row in range(0, len(grid), each)]
    return [list(panels) for block in blocks for panels in zip(*block, strict=True)]


def _legend(
    columns: Sequence[Column], colours: Mapping[str, str], dashed: Collection[str]
) -> list[Any]:
    """Return a line for every arm that any task has: one need not be in the first."""
    from matplotlib.lines import Line2D

    labels = {name: arm.label for column in columns for name, arm in column.arms.items()}
    return [
        Line2D([], [], color=colours[name], label=labels[name],
               ls="--" if name in dashed else "-", lw=_THICK)
        for name in colours if name in labels
    ]  # fmt: skip


def _looks(column: Column, colours: Mapping[str, str], dashed: Collection[str]) -> dict[str, Look]:
    """Return how each arm is drawn: one seed thin, where others have several."""
    most = max(len(arm.seeds) for arm in column.arms.values())
    return {
        name: (
            colours[name],
            "--" if name in dashed else "-",
            _THIN if len(arm.seeds) == 1 < most else _THICK,
        )
        for name, arm in column.arms.items()
    }


def _against_time(panel: Any, column: Column, looks: Mapping[str, Look]) -> None:
    for name, arm in column.arms.items():
        if name in column.seconds:
            minutes = arm.updates_per_epoch * column.seconds[name] / 60
            _curve(panel, arm, minutes, looks[name])
    _dress(panel, "", "minutes, a run's share of its stack")
    if not panel.get_lines():
        _say(panel, "the time of an update is not recorded yet")


def search_text(arm: Arm) -> str:
    """Return how many trials an arm's search had, and how many of them diverged."""
    statuses = [record["status"] for record in arm.searched]
    diverged = statuses.count("diverged")
    trials = f"{len(statuses)} trial{'s' if len(statuses) > 1 else ''}"
    return trials + (f", {diverged} diverged" if diverged else "")


def microseconds(arm: Arm, seconds: Mapping[str, float]) -> str:
    """Return the time of an update of an arm, a dash where it was not measured."""
    return f"{1e6 * seconds[arm.name]:.0f}" if arm.name in seconds else "-"


def _curve(panel: Any, arm: Arm, scale: float, look: Look) -> None:
    """Draw the median over an arm's seeds with a band, then what one seed alone did after them."""
    colour, line, width = look
    curves = [record["curve"] for record in arm.seeds]
    epochs, points = together(curves)
    where = [scale * epoch for epoch in epochs]
    middle = [statistics.median(point) for point in points]
    panel.plot(where, middle, line, color=colour, lw=width, label=arm.label)
    if len(curves) > 1:
        low, high = [min(point) for point in points], [max(point) for point in points]
        panel.fill_between(where, low, high, color=colour, alpha=0.2, lw=0)
    longest = arm.longest["curve"]
    rest = [i for i, epoch in enumerate(longest["epoch"]) if not epochs or epoch >= epochs[-1]]
    later = [scale * longest["epoch"][i] for i in rest]
    panel.plot(later, [longest["error"][i] for i in rest], line, color=colour, lw=_THIN)


def together(curves: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[tuple[float, ...]]]:
    """Return the epochs at which all curves were evaluated, and the errors of all at each.

    Curves need not have been evaluated equally often: a long run is at fewer points.

    Example:
        >>> often = {"epoch": [0, 10, 20, 30], "error": [9.0, 5.0, 3.0, 2.0]}
        >>> together([often, {"epoch": [0, 20, 40], "error": [8.0, 4.0, 1.0]}])
        ([0, 20], [(9.0, 8.0), (3.0, 4.0)])
    """
    errors = [dict(zip(curve["epoch"], curve["error"], strict=True)) for curve in curves]
    epochs = [epoch for epoch in errors[0] if all(epoch in own for own in errors)]
    return epochs, [tuple(own[epoch] for own in errors) for epoch in epochs]


def _say(panel: Any, text: str) -> None:
    """Say in a panel why it is empty."""
    panel.text(0.5, 0.5, text, ha="center", va="center", transform=panel.transAxes, color="#555555")
    panel.set_xticks([])
    panel.set_yticks([], minor=True)
    panel.set_yticks([])


def _tick(value: float, _position: int) -> str:
    """Return the label of 1, 2, 4 and 6 times a power of ten."""
    first = f"{value:e}"[0]
    return f"{value:g}" if first in "1246" else ""


def _dress(panel: Any, title: str, label: str) -> None:
    from matplotlib.ticker import FuncFormatter

    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(FuncFormatter(_tick))
    panel.yaxis.set_minor_formatter(FuncFormatter(_tick))
    errors = sorted(value for line in panel.get_lines() for value in line.get_ydata()[1:])
    if errors:
        # The start is the same for all; what happens below the mean image is the figure.
        panel.set_ylim(errors[0] * 0.8, min(errors[-1] * 1.2, 60))
    panel.set_xlim(left=0)
    panel.set_title(title)
    panel.set_xlabel(label)
    panel.grid(axis="y", color="#dddddd", lw=0.6)
