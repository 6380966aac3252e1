"""The momentum study drawn: error against updates and against time, and its tables."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from equilibrate.paper.arm_drawing import TITLES, Column, draw_columns, microseconds, search_text
from equilibrate.paper.arm_records import Arm, error_at, told
from equilibrate.paper.drawing import BLACK, GREEN, ORANGE, SKY, VERMILION
from equilibrate.paper.figure import Description, Records, Table
from equilibrate.paper.momentum_arms import momentum_arms

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

COLOURS = {"nag": BLACK, "rmsprop": SKY, "adam": GREEN, "jacobi": ORANGE, "esgd": VERMILION}
_SHOWN = ("lr", "momentum", "betas")


def draw(records: Records, timings: Mapping[str, Mapping[str, float]]) -> "Picture":
    """Draw every task that is recorded."""
    return draw_columns(_columns(records, timings), COLOURS, "updates")


def _columns(records: Records, timings: Mapping[str, Mapping[str, float]]) -> list[Column]:
    tasks = dict.fromkeys(record["task"] for record in records)
    return [Column(task, momentum_arms(records, task), timings.get(task, {})) for task in tasks]


def describe(
    records: Records, timings: Mapping[str, Mapping[str, float]], first_rungs: Mapping[str, int]
) -> Description:
    """Return caption and tables; `first_rungs` are epochs, by task."""
    tables = []
    for column in _columns(records, timings):
        first, arms = first_rungs[column.task], list(column.arms.values())
        updates = max((round(first * arm.updates_per_epoch) for arm in arms), default=0)
        header = ("method", "search", "best settings", f"best of the search at {updates:,} updates",
                  "winner at the end", "over seeds", "us per update")  # fmt: skip
        rows = tuple(_row(arm, first, column.seconds) for arm in arms)
        tables.append(Table(TITLES[column.task], header, rows))
    caption = (
        "Learning curves of deep auto-encoders with momentum, the winner of each method's search "
        "by successive halving: median over seeds, band from the best to the worst seed. Squared "
        "error over the whole training set, batch 200, no regularisation."
    )
    shown = [arm for column in _columns(records, timings) for arm in column.arms.values()]
    if not any(len(arm.seeds) > 1 for arm in shown):
        caption += " So far the search alone, at one seed: longer runs are not recorded yet."
    notes = (
        "Every method has a grid of three learning rates, inside one decade, times three momenta, "
        "and after its results a second one: on Sutskever's schedule ('rising') for those that "
        "were not, in the next decade of learning rates for NAG and Adam. The best of the last "
        "rung is trained anew with all seeds (Adam's momentum is beta1). In the last 1,000 "
        "updates no momentum but Adam's exceeds 0.9, and every learning rate is a tenth.",
        "'Lowest' and 'highest' say that a winner lies at that end of its grid.",
        "CURVES-like images are generated to match four statistics of CURVES; their errors must "
        "not be set beside published CURVES errors.",
        "Time: the measured time of one update of each method alone, times the updates.",
    )
    return Description(caption, notes, tuple(tables))


def _row(arm: Arm, first: int, seconds: Mapping[str, float]) -> tuple[str, ...]:
    best = arm.best["settings"]
    shown = [_setting(arm, name, best[name]) for name in _SHOWN if name in best]
    settings = ", ".join(shown + ["rising"] * (best.get("momentum_schedule") == "sutskever"))
    early = min(error_at(record, first) for record in arm.searched)
    cut = "" if arm.longest["status"] == "finished" else f" ({arm.longest['status']})"
    return (
        arm.label,
        search_text(arm),
        settings,
        f"{early:.3g}",
        f"{arm.last:.3g} at {arm.longest['curve']['updates'][-1]:,} updates{cut}",
        told(arm.error()),
        microseconds(arm, seconds),
    )


def _setting(arm: Arm, name: str, value: Any) -> str:
    """Return a setting as text, and whether it lies at an end of what was tried."""
    tried = sorted({_number(record["settings"][name]) for record in arm.searched})
    mine = _number(value)
    ends = {tried[0]: " (lowest)", tried[-1]: " (highest)"} if len(tried) > 1 else {}
    return f"{'beta1' if name == 'betas' else name} {mine:g}{ends.get(mine, '')}"


def _number(value: Any) -> float:
    return float(value[0] if isinstance(value, list | tuple) else value)
