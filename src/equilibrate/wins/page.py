"""The report of fights as one Markdown page: verdicts, and a table for every task."""

import math
from collections.abc import Iterable, Mapping, Sequence

from equilibrate.study.fields.problems import psnr
from equilibrate.study.journal import Record
from equilibrate.study.outcome import Spread, final_error
from equilibrate.wins.drawing import label
from equilibrate.wins.fight import Result, least_worst
from equilibrate.wins.fighters import BASELINE, FIGHTERS, OURS, SHIPPED_RATE, is_ours
from equilibrate.wins.fought import Fought
from equilibrate.wins.grid import at_an_end
from equilibrate.wins.interval import coverage, interval, rank
from equilibrate.wins.reading import (
    TIE,
    Score,
    behind,
    best_rival,
    scores,
    stuck,
    target,
    verdict,
)
from equilibrate.wins.terms import Terms
from equilibrate.wins.timing import Pace

CLEAR = 3.0  # decibels: what counts as a win
_CHOSEN = {"mean": "the least geometric mean of the errors",
           "worst": "the least error on the worst instance"}  # fmt: skip
_VERDICTS = ["task", "ours", "", "best rival", "gap, dB", "gap to AdamW, dB", "intervals apart",
             "first to the target"]  # fmt: skip


def page(fights: Sequence[Fought], pictures: str = "") -> str:
    """Return the page of fights with one schedule.

    Args:
        fights: what is told, in this order.
        pictures: where the figures of a fight lie; `{}` stands for the fight's name.
    """
    parts = [_introduction(fights[0].terms)]
    for one in fights:
        folder = pictures.format(one.terms.name)
        parts += [_terms(one), _verdicts(one), _figures(one, folder)]
        parts += [_task(r, p) for r, p in zip(one.results, one.paces, strict=True)]
    parts.append(_diverged(fights))
    return "\n\n".join(parts) + "\n"


def standing(result: Result, pace: Mapping[str, Pace], ours: str = OURS) -> str:
    """Say in one word how one of ours did: wins, ahead, level, mixed, behind, loses.

    Ahead and behind: the interval of the paired gaps lies on one side of zero; mixed: it does not.
    A win or a loss is a median gap of 3 dB or more besides, and the intervals of the two errors
    apart. Level: the median gap is less than a tenth of a decibel.
    """
    found = verdict(result, pace, ours)
    gap = found.gap
    if abs(gap.median) < TIE:
        return "level"
    if gap.low <= 0 <= gap.high:
        return "mixed"
    clear = abs(gap.median) >= CLEAR and found.apart
    return ("wins" if clear else "ahead") if gap.low > 0 else ("loses" if clear else "behind")


def _introduction(terms: Terms) -> str:
    shape = f"a rise over {terms.ramp:.0%} of the run, then a cosine" if terms.ramp else "a cosine"
    return "\n".join([
        f"# The fight: {'with a ramp' if terms.ramp else 'cosine alone'}", "",
        f"Schedule of every fighter: {shape}. Every fighter on a task has equally many learning "
        "rates, over equally many decades, on the same instances; grids are extended for all or "
        "for none. Finals run on other instances, each with a seed of its own.", "",
        "The target is tuned AdamW's own median final error. Seconds are updates times the pace of "
        "an update, measured side by side in turns, the warm-up counted. Gaps are paired, instance "
        "by instance, and positive where ours is better; *worse than* counts the finals that ended "
        "worse on the same instance. *Least worst of the tuning*: the least error on the worst "
        "instance, and its learning rate. *Not tuned* is the learning rate as shipped. *Wins* and "
        "*loses*: by 3 dB or more and intervals apart; *ahead* and *behind*: the interval of the "
        "gap lies on one side of zero; *mixed*: it does not; *level*: a gap of less than 0.1 dB.",
    ])  # fmt: skip


def _terms(fought: Fought) -> str:
    plan, finals = fought.terms.plan, fought.terms.finals
    counts = sorted({len(grid) for result in fought.results for grid in result.grids.values()})
    k = rank(finals)
    unlimited = fought.terms.growth_limit is None
    return "\n".join([
        f"## Instances {plan.tuning[0]} to {plan.finals[-1]}", "",
        f"`{fought.terms.command}`", "",
        f"{' or '.join(map(str, counts))} learning rates, {plan.per_decade} a decade, on "
        f"{_span(plan.tuning)}; the one with {_CHOSEN[plan.choose]} is taken. Finals: "
        f"{_span(plan.finals)}. Medians, and in brackets their "
        f"{coverage(finals, k):.0%} interval, {_ranks(k)}."
        + (" ESGD without `growth_limit`, which came later." if unlimited else ""),
    ])  # fmt: skip


def _ranks(k: int) -> str:
    which = {1: "", 2: "second ", 3: "third "}.get(k, f"{k}th ")
    return f"the {which}least to the {which}greatest"


def _span(instances: Sequence[int]) -> str:
    one, last = instances[0], instances[-1]
    return f"instances {one} to {last}" if len(instances) > 1 else f"instance {one}"


def _verdicts(fought: Fought) -> str:
    pairs = zip(fought.results, fought.paces, strict=True)
    rows = [_verdict(r, p, f) for r, p in pairs for f in filter(is_ours, r.best)]
    return _table(_VERDICTS, rows)


def _verdict(result: Result, pace: Mapping[str, Pace], ours: str) -> list[str]:
    found = verdict(result, pace, ours)
    first = "yes, intervals apart" if found.sooner_apart else "yes"
    return [
        result.task.name, label(ours), standing(result, pace, ours), label(found.rival),
        _gap(found.gap), _gap(found.gap_to_baseline), "yes" if found.apart else "no",
        first if found.sooner else f"no, {label(found.soonest)}" if found.soonest else "nobody",
    ]  # fmt: skip


def _gap(gap: Spread) -> str:
    # Adding zero makes a rounded -0.0 a plain zero.
    middle, low, high = (f"{round(x, 1) + 0:+.1f}" for x in (gap.median, gap.low, gap.high))
    return f"{middle} ({low} to {high})"


def _figures(fought: Fought, folder: str) -> str:
    shown = {"summary": "final errors, time to target, performance profile",
             "curves": "learning curves and tuning"}  # fmt: skip
    shown |= {f"fields-{name}": f"fields, {name}" for name in fought.faults}
    return "\n".join(f"![{text}]({folder}{name}.png)" for name, text in shown.items())


def _task(result: Result, pace: Mapping[str, Pace]) -> str:
    goal = _one_error(target(result), result.task.decibels)
    goal += " dB" if result.task.decibels else ""
    header = ["fighter", "lr", "after a tenth of the run", "final error",
              f"worse than {label(best_rival(result))}", "updates to target", "s to target",
              "ms an update", "least worst of the tuning",
              "diverged: tuning, finals"]  # fmt: skip
    rows = [_row(result, score, pace) for score in scores(result, pace)]
    rows += [_shipped_row(result, fighter) for fighter in result.shipped]
    lines = [f"### {result.task.name}: {result.task.label}", "",
             f"Target (tuned {label(BASELINE)}): {goal}.", "", _table(header, rows)]  # fmt: skip
    ends = at_an_end(result.best, result.grids)
    if ends:
        names = ", ".join(map(label, ends))
        lines += ["", f"At an end of the widest grid all the same: {names}."]
    for fighter, count in stuck(result).items():
        who = f"{count} tuned finals of {label(fighter)}"
        lines += ["", f"Ended where they began: {who}. Is it run right?"]
    return "\n".join(lines)


def _row(result: Result, score: Score, pace: Mapping[str, Pace]) -> list[str]:
    tuning, finals = result.tuning[score.fighter], len(result.finals[score.fighter])
    return [
        _name(score.fighter), f"{score.rate:g}", _error(score.early, result.task.decibels),
        _error(score.error, result.task.decibels),
        _behind(result, score), _cost(score.updates, ".0f"), _cost(score.seconds, ".3g"),
        f"{1000 * pace[score.fighter].seconds:.3g}", _least_worst(result, score.fighter),
        f"{_failures(tuning)} of {len(tuning)}, {score.failed} of {finals}",
    ]  # fmt: skip


def _least_worst(result: Result, fighter: str) -> str:
    rate, error = least_worst(result.tuning[fighter])
    unit = " dB" if result.task.decibels else ""
    return f"{_one_error(error, result.task.decibels)}{unit} at {rate:g}"


def _behind(result: Result, score: Score) -> str:
    itself = score.fighter == best_rival(result)
    return "-" if itself else f"{score.behind} of {len(result.finals[score.fighter])}"


def _shipped_row(result: Result, fighter: str) -> list[str]:
    records = result.shipped[fighter]
    error = _error(interval(map(final_error, records)), result.task.decibels)
    failed = f"-, {_failures(records)} of {len(records)}"
    name = f"{_name(fighter)}, not tuned"
    worse = f"{behind(result, records)} of {len(records)}"
    return [name, f"{SHIPPED_RATE:g}", "", error, worse, "", "", "", "", failed]


def _diverged(fights: Sequence[Fought]) -> str:
    """Count the trials of all tunings that left the numbers, fighter by fighter."""
    results = [result for one in fights for result in one.results]
    rows = []
    for fighter in FIGHTERS:
        trials = _once(result.tuning.get(fighter, ()) for result in results)
        lost = [record["settings"]["lr"] for record in trials if record["status"] != "finished"]
        if trials:
            least = f"{min(lost):g}" if lost else "-"
            rows.append([_name(fighter), str(len(trials)), str(len(lost)), least])
    shipped = _once(records for result in results for records in result.shipped.values())
    return "\n".join([
        "## Diverged", "",
        "Trials of the tuning whose loss became infinite or not a number.", "",
        _table(["fighter", "trials", "diverged", "from lr"], rows), "",
        f"With the learning rate as shipped, {SHIPPED_RATE:g}: {_failures(shipped)} of "
        f"{len(shipped)} finals of ours.",
    ])  # fmt: skip


def _once(rows: Iterable[Sequence[Record]]) -> list[Record]:
    """Return all records; two fights may share some."""
    return list({record["key"]: record for row in rows for record in row}.values())


def _failures(records: Sequence[Mapping[str, object]]) -> int:
    return sum(record["status"] != "finished" for record in records)


def _name(fighter: str) -> str:
    return f"**{label(fighter)}**" if is_ours(fighter) else label(fighter)


def _error(spread: Spread, decibels: bool) -> str:
    low, high = (spread.high, spread.low) if decibels else (spread.low, spread.high)
    middle, low_, high_ = (_one_error(e, decibels) for e in (spread.median, low, high))
    return f"{middle}{' dB' if decibels else ''} ({low_} to {high_})"


def _one_error(error: float, decibels: bool) -> str:
    if math.isinf(error):
        return "failed"
    return f"{psnr(error):.1f}" if decibels else f"{error:.3g}"


def _cost(spread: Spread, form: str) -> str:
    middle, low, high = (_number(x, form) for x in (spread.median, spread.low, spread.high))
    return middle if math.isinf(spread.low) else f"{middle} ({low} to {high})"


def _number(value: float, form: str) -> str:
    return "never" if math.isinf(value) else format(value, form)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
