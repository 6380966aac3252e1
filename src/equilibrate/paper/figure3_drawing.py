"""Figure 3 drawn: error against epochs and against time, one column for each task."""

from typing import TYPE_CHECKING, Any

from equilibrate.paper.drawing import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    axes,
)  # fmt: skip
from equilibrate.paper.figure import Description, Records, Table
from equilibrate.paper.figure3_arms import Arm, arms_of
from equilibrate.paper.figure3_claims import told

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

COLOURS = {
    "sgd": BLACK,
    "rmsprop": SKY,
    "jacobi": ORANGE,
    "jacobi-clean": PURPLE,
    "esgd-literal": GREEN,
    "esgd-warm": BLUE,
    "esgd": VERMILION,
}
TITLES = {"mnist": "MNIST", "curves-like": "CURVES-like (not CURVES)"}


def draw(records: Records, timings: dict[str, dict[str, float]]) -> "Picture":
    """Draw the winners' medians over seeds with a band from the best to the worst seed."""
    tasks = list(dict.fromkeys(record["task"] for record in records))
    picture, grid = axes(2, len(tasks), (5.2 * len(tasks) + 0.6, 7.2), squeeze=False)
    for column, task in enumerate(tasks):
        arms = arms_of(records, task)
        for name, arm in arms.items():
            _curve(grid[0][column], arm, 1.0)
            if name in timings.get(task, {}):
                _curve(grid[1][column], arm, _seconds_per_epoch(arm, timings[task][name]) / 60)
        _dress(grid[0][column], TITLES[task], "epochs")
        _dress(grid[1][column], "", "minutes for one run of many at once")
        if not grid[1][column].get_lines():
            _say(grid[1][column], "the time of an update is not recorded yet")
    for row in grid:
        row[0].set_ylabel("training squared error")
    handles, labels = grid[0][0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=1 + len(tasks), fontsize=9)
    drawn: Picture = picture
    return drawn


def _seconds_per_epoch(arm: Arm, seconds_per_update: float) -> float:
    curve = arm.best["curve"]
    return float(seconds_per_update * curve["updates"][-1] / curve["epoch"][-1])


def _curve(panel: Any, arm: Arm, scale: float) -> None:
    """Draw one arm; a band only where all seeds have the same points."""
    colour, longest = COLOURS[arm.name], arm.longest["curve"]
    panel.plot([scale * e for e in longest["epoch"]], longest["error"], color=colour, lw=0.8)
    curves = [record["curve"] for record in arm.seeds]
    length = min(len(curve["epoch"]) for curve in curves)
    where = [scale * epoch for epoch in curves[0]["epoch"][:length]]
    points = list(zip(*(curve["error"][:length] for curve in curves), strict=True))
    middle = [sorted(point)[len(point) // 2] for point in points]
    panel.plot(where, middle, color=colour, lw=1.6, label=arm.label)
    if len(curves) > 1:
        low, high = [min(point) for point in points], [max(point) for point in points]
        panel.fill_between(where, low, high, color=colour, alpha=0.2, lw=0)


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


def describe(records: Records, timings: dict[str, dict[str, float]]) -> Description:
    """Return caption and table."""
    tables = []
    for task in dict.fromkeys(record["task"] for record in records):
        arms = arms_of(records, task)
        rows = tuple(_row(arm, timings.get(task, {})) for arm in arms.values())
        header = ("method", "search", "best settings", "error after the search",
                  "over seeds", "longest run", "us per update")  # fmt: skip
        tables.append(Table(TITLES[task], header, rows))
    caption = (
        "Learning curves of deep auto-encoders, the best trial of each method's random search: "
        "median over seeds, band from the best to the worst seed, thin lines the longest runs "
        "(one seed). Squared error over the whole "
        "training set, batch 200, no momentum, no regularisation, sigmoid code layer."
    )
    notes = (
        "CURVES-like images are generated to match four statistics of CURVES; their errors must "
        "not be set beside published CURVES errors.",
        "Time: the measured time of one update of each method alone, times the updates.",
    )
    return Description(caption, notes, tuple(tables))


def _row(arm: Arm, timings: dict[str, float]) -> tuple[str, ...]:
    statuses = [record["status"] for record in arm.searched]
    diverged = statuses.count("diverged")
    search = f"{len(statuses)} trials" + (f", {diverged} diverged" if diverged else "")
    shown = {
        k: v for k, v in arm.best["settings"].items() if k in ("lr", "damping", "eps", "alpha")
    }
    settings = ", ".join(f"{key} {value:g}" for key, value in shown.items())
    cut = f" of {arm.longest['epochs']}" if arm.longest["status"] == "cut" else ""
    time = f"{1e6 * timings[arm.name]:.0f}" if arm.name in timings else "-"
    return (
        arm.label,
        search,
        settings,
        f"{arm.best['final_error']:.3g}",
        told(arm.error()),
        f"{arm.last:.3g} at {arm.trained}{cut} epochs",
        time,
    )
