"""The momentum study drawn: error against updates and against time, and its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from equilibrate.paper.arm_drawing import TITLES, Column, draw_columns, microseconds, search_text
from equilibrate.paper.arm_records import Arm, error_at, least_to_most, told
from equilibrate.paper.drawing import BLACK, GREEN, ORANGE, SKY, VERMILION
from equilibrate.paper.falling_arms import remembers
from equilibrate.paper.figure import Description, Records, Table
from equilibrate.paper.momentum_arms import momentum_arms
from equilibrate.paper.steady import SUFFIX, steady_arms
from equilibrate.study.schedules import start_of_the_end

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

COLOURS = {"nag": BLACK, "rmsprop": SKY, "adam": GREEN, "jacobi": ORANGE, "esgd": VERMILION}
_SHOWN = ("lr", "momentum", "betas")
Tried = tuple[str, Mapping[str, Any]]  # an arm and settings
_STRAIGHT = ". Every learning rate falls to zero along half a cosine, over the whole of a run."
_FALLING = f"{_STRAIGHT[:-1]}: in the search over its shorter one."


def draw(records: Records, timings: Mapping[str, Mapping[str, float]]) -> "Picture":
    """Draw every task that is recorded, dashed what is best over seeds and did not win."""
    columns = _columns(records, timings)
    shown = [replace(c, arms={**c.arms, **_steady(c, records)}) for c in columns]
    dashed = {name + SUFFIX: colour for name, colour in COLOURS.items()}
    return draw_columns(shown, COLOURS | dashed, "updates", dashed)


def _columns(records: Records, timings: Mapping[str, Mapping[str, float]]) -> list[Column]:
    tasks = dict.fromkeys(record["task"] for record in records)
    return [Column(task, momentum_arms(records, task), timings.get(task, {})) for task in tasks]


def _steady(column: Column, records: Records) -> dict[str, Arm]:
    return steady_arms(column.arms, [r for r in records if r["task"] == column.task])


def _steady_told(column: Column, records: Records) -> list[str]:
    """Say what is drawn dashed."""
    return [
        f"Dashed, {TITLES[column.task]}: {arm.label}, which did not win at seed 0 "
        f"({_settings(arm)}): {told(arm.error())}."
        for arm in _steady(column, records).values()
    ]


def describe(
    records: Records,
    timings: Mapping[str, Mapping[str, float]],
    first_rungs: Mapping[str, int],
    *,
    straight: bool = False,
) -> Description:
    """Return caption and tables; `first_rungs` are epochs, by task.

    `straight` tells that all trials were trained to the end, and winners chosen there.
    """
    columns = _columns(records, timings)
    tables = tuple(_table(column, first_rungs[column.task]) for column in columns)
    arms = [arm for column in columns for arm in column.arms.values()]
    searched = any(len(arm.searched) > 1 for arm in arms)
    how = "trials that all train to the end" if straight else "search by successive halving"
    shown = f"the winner of each method's {how}" if searched else "a trial each"
    caption = (
        f"Learning curves of deep auto-encoders with momentum, {shown}: {_over_seeds(arms)}. "
        "Squared error over the whole training set, batch 200, no regularisation."
    )
    if not straight and not any(arm.longest["epochs"] > arm.best["epochs"] for arm in arms):
        caption += " So far the search alone, at one seed: longer runs are not recorded yet."
    steady = [text for column in columns for text in _steady_told(column, records)]
    return Description(caption, (*_notes(arms, straight), *steady), tables)


def _over_seeds(arms: Sequence[Arm]) -> str:
    number = least_to_most(len(arm.seeds) for arm in arms)
    if number == "1":
        return "one seed"
    return f"median over {number} seeds, band from the best to the worst"


def _notes(arms: Sequence[Arm], straight: bool) -> tuple[str, ...]:
    tried = [(arm.name, record["settings"]) for arm in arms for record in arm.searched]
    falls = any(_falls(own) for _, own in tried)
    over = _STRAIGHT if straight else _FALLING
    return (
        _what_was_tried(arms, tried, straight),
        "At the end (the last 1,000 updates of a full run) no momentum but Adam's exceeds 0.9"
        f"{over if falls else ', and every learning rate is a tenth.'}",
        "'Lowest' and 'highest' say that a winner lies at that end of what was tried.",
        "CURVES-like images are generated to match four statistics of CURVES; their errors must "
        "not be set beside published CURVES errors.",
        "Time: the measured time of one update of each method alone, times the updates.",
    )


def _what_was_tried(arms: Sequence[Arm], tried: Sequence[Tried], straight: bool) -> str:
    """Return what every method was tried with, and what came after what."""
    if not any(len(arm.searched) > 1 for arm in arms):
        return "Every method has one trial, at settings nobody searched."
    if straight:
        return (
            f"{least_to_most(len(arm.searched) for arm in arms)} settings for every method, chosen "
            "after the results of the other studies, in later rounds after those of the first, "
            "and all trained to the end. ESGD and Jacobi are damped by one number for all "
            "tensors; they and RMSProp average over 2,000 steps ('long memory')."
        )
    told = (
        "Every method has a grid of three learning rates, inside one decade, times three "
        "momenta; the best of the search's last rung is trained anew (NAG: the largest of "
        "Sutskever's schedule; Adam: beta1)."
    )
    falls = any(_falls(own) for _, own in tried)
    if not falls and any(name != "nag" and _rising(own) for name, own in tried):
        told += (
            " A second grid came after the results of the first: on Sutskever's schedule "
            "('rising'), and in the next decade of learning rates for NAG and Adam."
        )
    if any(_floored(own) for _, own in tried):
        told += (
            " A second grid came after the results of the first: with a floor under the mean of D "
            "for ESGD and Jacobi, at other learning rates and momenta for the others."
        )
    if any(remembers(own) for _, own in tried):
        told += (
            " A third came after the second: with a longer memory and more damping for all that "
            "have them ('long memory')."
        )
    return told


def _table(column: Column, first: int) -> Table:
    arms = list(column.arms.values())
    updates = max((round(first * arm.updates_per_epoch) for arm in arms), default=0)
    header = (
        "method",
        "search",
        "best settings",
        f"best of the search at {updates:,} updates",
        "winner before the end",
        "winner at the end",
        "over seeds",
        "us per update",
    )
    rows = tuple(_row(arm, first, column.seconds) for arm in arms)
    return Table(TITLES[column.task], header, rows)


def _row(arm: Arm, first: int, seconds: Mapping[str, float]) -> tuple[str, ...]:
    early = min(error_at(record, first) for record in arm.searched)
    cut = "" if arm.longest["status"] == "finished" else f" ({arm.longest['status']})"
    return (
        arm.label,
        search_text(arm),
        _settings(arm),
        f"{early:.3g}",
        _before_the_end(arm),
        f"{arm.last:.3g} at {arm.longest['curve']['updates'][-1]:,} updates{cut}",
        told(arm.error()) if len(arm.seeds) > 1 else "one seed",
        microseconds(arm, seconds),
    )


def _settings(arm: Arm) -> str:
    best = arm.best["settings"]
    shown = [_setting(arm, name, best[name]) for name in _SHOWN if name in best]
    if best.get("damping_kind") == "absolute" and _rising(best):
        shown.append(f"damping {best['damping']:g}")
    marks = {"rising": _rising, "mean_floor": _floored, "long memory": remembers}
    return ", ".join(shown + [mark for mark, has in marks.items() if has(best)])


def _before_the_end(arm: Arm) -> str:
    """Return the last error measured before the last updates, which take smaller steps."""
    if _falls(arm.longest["settings"]):
        return "-"
    curve = arm.longest["curve"]
    total = arm.longest["epochs"] * arm.updates_per_epoch
    points = zip(curve["updates"], curve["error"], strict=True)
    before = [error for updates, error in points if updates <= start_of_the_end(round(total))]
    return f"{before[-1]:.3g}"


def _setting(arm: Arm, name: str, value: Any) -> str:
    """Return a setting as text, and whether it lies at an end of what was tried."""
    rivals = [r["settings"] for r in arm.searched]
    if name == "momentum":  # constant and rising ones are no row of numbers
        rivals = [own for own in rivals if _rising(own) == _rising(arm.best["settings"])]
    tried = sorted({_number(own[name]) for own in rivals})
    mine = _number(value)
    ends = {tried[0]: " (lowest)", tried[-1]: " (highest)"} if len(tried) > 1 else {}
    return f"{'beta1' if name == 'betas' else name} {mine:g}{ends.get(mine, '')}"


def _floored(settings: Mapping[str, Any]) -> bool:
    return bool(settings.get("mean_floor"))


def _rising(settings: Mapping[str, Any]) -> bool:
    return bool(settings.get("momentum_schedule") == "sutskever")


def _falls(settings: Mapping[str, Any]) -> bool:
    return bool(settings.get("lr_schedule") == "cosine")


def _number(value: Any) -> float:
    return float(value[0] if isinstance(value, list | tuple) else value)
