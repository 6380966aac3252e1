"""Figure 3 drawn: error against epochs and against time, one column for each task."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from equilibrate.paper.arm_drawing import TITLES, Column, draw_columns, microseconds, search_text
from equilibrate.paper.arm_records import Arm, arms_of, told
from equilibrate.paper.arms import LATER
from equilibrate.paper.drawing import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from equilibrate.paper.figure import Description, Records, Table

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
COLOURS |= {arm: COLOURS[base] for arm, base in LATER.items()}  # and dashed


def draw(records: Records, timings: dict[str, dict[str, float]]) -> "Picture":
    """Draw every task that is recorded."""
    return draw_columns(_columns(records, timings), COLOURS, "epochs", dashed=LATER)


def _columns(records: Records, timings: dict[str, dict[str, float]]) -> list[Column]:
    tasks = dict.fromkeys(record["task"] for record in records)
    return [Column(task, arms_of(records, task), timings.get(task, {})) for task in tasks]


def describe(records: Records, timings: dict[str, dict[str, float]]) -> Description:
    """Return caption and table."""
    tables, columns = [], _columns(records, timings)
    for column in columns:
        rows = tuple(_row(arm, column.seconds) for arm in column.arms.values())
        header = ("method", "search", "best settings", "error after the search",
                  "over seeds", "longest run", "us per update")  # fmt: skip
        tables.append(Table(TITLES[column.task], header, rows))
    caption = (
        "Learning curves of deep auto-encoders, the best trial of each method's random search: "
        "median over seeds, band from the best to the worst seed, thin lines what one seed alone "
        "did after that. Squared error over the whole training set, batch 200, no momentum, no "
        "regularisation, sigmoid code layer."
    )
    notes = (
        "CURVES-like images are generated to match four statistics of CURVES; their errors must "
        "not be set beside published CURVES errors.",
        "Time: the measured time of one update of each method alone, times the updates.",
    )
    return Description(caption, notes + _of_ours(columns), tuple(tables))


def _of_ours(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return a note on every arm that came later, once it is recorded."""
    found = {
        arm: column.arms[arm].label for column in columns for arm in LATER if arm in column.arms
    }
    return tuple(
        f"{label} is not the paper's: it came later, and no sentence of the paper is judged by it."
        for label in found.values()
    )


def _row(arm: Arm, seconds: Mapping[str, float]) -> tuple[str, ...]:
    shown = {
        k: v for k, v in arm.best["settings"].items() if k in ("lr", "damping", "eps", "alpha")
    }
    settings = ", ".join(f"{key} {value:g}" for key, value in shown.items())
    cut = f" of {arm.longest['epochs']}" if arm.longest["status"] == "cut" else ""
    return (
        arm.label,
        search_text(arm),
        settings,
        f"{arm.best['final_error']:.3g}",
        told(arm.error()),
        f"{arm.last:.3g} at {arm.trained}{cut} epochs",
        microseconds(arm, seconds),
    )
