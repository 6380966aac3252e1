"""The report of a fight as one Markdown page: a verdict and a table for every task."""

import math
from collections.abc import Mapping, Sequence

from equilibrate.study.fields.problems import psnr
from equilibrate.study.outcome import Spread
from equilibrate.wins.drawing import label
from equilibrate.wins.fight import Plan, Result
from equilibrate.wins.fighters import BASELINE, OURS
from equilibrate.wins.grid import at_an_end
from equilibrate.wins.reading import Score, is_ours, scores, target, verdict

Pace = Mapping[str, float]
CLEAR = 3.0  # decibels: what counts as a win
_HEADER = "| fighter | lr | final error | failed | updates to target | s to target | ms an update |"


def page(
    results: Sequence[Result], paces: Sequence[Pace], plan: Plan, command: str, schedule: str
) -> str:
    """Return the page."""
    parts = [_introduction(results, plan, command, schedule), _verdicts(results, paces)]
    parts += [_task(result, pace) for result, pace in zip(results, paces, strict=True)]
    return "\n\n".join(parts) + "\n"


def standing(result: Result, pace: Pace, ours: str = OURS) -> str:
    """Say in one word how one of ours did: wins, ahead, mixed, behind, loses.

    A win or a loss is a median gap of 3 dB or more with all paired gaps on one side; mixed means
    that the paired gaps lie on both sides of zero.
    """
    gap = verdict(result, pace, ours).gap
    if gap.low <= 0 <= gap.high:
        return "mixed"
    better = gap.low > 0
    clear = abs(gap.median) >= CLEAR
    return ("wins" if clear else "ahead") if better else ("loses" if clear else "behind")


def _introduction(results: Sequence[Result], plan: Plan, command: str, schedule: str) -> str:
    counts = {len(grid) for result in results for grid in result.grids.values()}
    return "\n".join([
        "# The fight", "",
        f"`{command}`", "",
        f"Every fighter on a task: {' or '.join(map(str, sorted(counts)))} learning rates, "
        f"{plan.per_decade} a decade, on instances {_span(plan.tuning)}; grids are extended "
        f"for all fighters of a task or for none. Schedule: {schedule}. Finals: instances "
        f"{_span(plan.finals)}, each with a seed of its own; median (least to greatest).",
        "The target is tuned AdamW's own median final error. Seconds are updates times the pace "
        "of an update, measured side by side, one trial at a time.",
    ])  # fmt: skip


def _span(instances: Sequence[int]) -> str:
    return f"{instances[0]} to {instances[-1]}" if len(instances) > 1 else str(instances[0])


def _verdicts(results: Sequence[Result], paces: Sequence[Pace]) -> str:
    rows = ["| task | ours | | best rival | gap, dB, paired | ranges apart | first to the target |",
            "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    pairs = zip(results, paces, strict=True)
    for result, pace, ours in ((r, p, f) for r, p in pairs for f in filter(is_ours, r.best)):
        found = verdict(result, pace, ours)
        gap = found.gap
        rows.append(
            f"| {result.task.name} | {label(ours)} | {standing(result, pace, ours)} "
            f"| {label(found.rival)} | {gap.median:+.1f} ({gap.low:+.1f} to {gap.high:+.1f}) "
            f"| {'yes' if found.apart else 'no'} | {label(found.first) if found.first else '-'} |"
        )
    return "\n".join(rows)


def _task(result: Result, pace: Pace) -> str:
    goal = target(result)
    shown = f"{psnr(goal):.1f} dB" if result.task.decibels else f"{goal:.3g}"
    lines = [f"## {result.task.name}: {result.task.label}", "",
             f"Target (tuned {label(BASELINE)}): {shown}.", "",
             _HEADER, "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    lines += [_row(result, score, pace) for score in scores(result, pace)]
    ends = at_an_end(result.best, result.grids)
    if ends:
        names = ", ".join(map(label, ends))
        lines += ["", f"At an end of the widest grid all the same: {names}."]
    return "\n".join(lines)


def _row(result: Result, score: Score, pace: Pace) -> str:
    name = f"**{label(score.fighter)}**" if is_ours(score.fighter) else label(score.fighter)
    cells = [
        name, f"{score.rate:g}", _error(score.error, result.task.decibels), str(score.failed),
        _number(score.updates.median, ".0f"), _number(score.seconds.median, ".3g"),
        f"{1000 * pace[score.fighter]:.3g}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _error(spread: Spread, decibels: bool) -> str:
    if decibels:
        ends = (spread.median, spread.high, spread.low)
        middle, low, high = ("failed" if math.isinf(e) else f"{psnr(e):.1f}" for e in ends)
        return f"{middle} dB ({low} to {high})"
    ends = (spread.median, spread.low, spread.high)
    middle, low, high = ("failed" if math.isinf(e) else f"{e:.3g}" for e in ends)
    return f"{middle} ({low} to {high})"


def _number(value: float, form: str) -> str:
    return "never" if math.isinf(value) else format(value, form)
