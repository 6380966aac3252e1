"""The numbers of a comparison: what a table, a file and a plot show alike."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from equilibrate.study.methods import Method
from equilibrate.study.outcome import (
    SEARCH_SEED,
    Record,
    Spread,
    at_edge,
    comparable,
    cost_to,
    error_at,
    final_error,
    judged,
    repeats,
    winner,
)
from equilibrate.study.profile import performance_profile
from equilibrate.study.strict_json import strict

Profile = dict[str, list[tuple[float, float]]]

_OUTER = 1 / 6  # of a range, at either end: together its outer third


@dataclass(frozen=True)
class Outcome:
    """What became of one method.

    Args:
        method: its name.
        label: its name in tables and plots.
        trials: of the search, by status: finished, diverged, cut.
        settings: of the winner; None where no trial finished.
        searched: those of its settings that were searched.
        ranges: where each of these was searched, in words.
        edges: a sentence for each of them in the outer third of its range.
        seeds: that the winner was trained with.
        final_error: of the winner, over its seeds; infinite where one diverged.
        updates: to the target; infinite where a seed never reached it.
        seconds: to the target; None where times cannot be compared.
        error_then: after the time that every method had; None likewise.
    """

    method: str
    label: str
    trials: Mapping[str, int]
    settings: Mapping[str, Any] | None = None
    searched: Mapping[str, Any] | None = None
    ranges: Mapping[str, str] = field(default_factory=dict)
    edges: Sequence[str] = ()
    seeds: Sequence[int] = ()
    final_error: Spread | None = None
    updates: Spread | None = None
    seconds: Spread | None = None
    error_then: Spread | None = None


@dataclass(frozen=True)
class Summary:
    """A comparison of methods on one problem, the best method first.

    Args:
        problem: its name.
        epochs: the budget of a trial.
        outcomes: one for each method, by final error.
        target: the error that updates and seconds are counted to; None where nothing finished.
        target_given: whether the user named it.
        equal_seconds: the time that every winner had; None where times cannot be compared.
        no_times: why they cannot; empty where they can.
        timed: what the times were measured on.
        profile_targets: target errors of the profiles.
        profile: by updates, method to steps (tau, share).
        time_profile: by seconds; empty where times cannot be compared.
    """

    problem: str
    epochs: int
    outcomes: Sequence[Outcome]
    target: float | None
    target_given: bool
    equal_seconds: float | None
    no_times: str
    timed: str
    profile_targets: Sequence[float]
    profile: Profile
    time_profile: Profile


def summarize(
    records: Sequence[Record], methods: Sequence[Method], *, target: float | None = None
) -> Summary:
    """Read a comparison from its records.

    Args:
        records: of one study: one problem, one budget.
        methods: that were compared, in the order of the request.
        target: an error; by default the worst of the methods' final errors (medians over seeds), so
            that every method reaches it with most of its seeds.
    """
    if not records:
        raise ValueError("there is nothing to compare: the study has no records")
    records = judged(records)
    by_method = {m.name: [r for r in records if r["method"] == m.name] for m in methods}
    winners = _winners(by_method)
    medians = {n: Spread.of(map(final_error, rows)).median for n, rows in winners.items()}
    # Of an even number of seeds the upper middle one: more than half of them get there, so that
    # the median of the costs is finite.
    middles = [statistics.median_high(map(final_error, rows)) for rows in winners.values()]
    finals = sorted(filter(math.isfinite, middles))
    reach = target if target is not None else max(finals, default=None)
    timed, no_times = comparable(winners)
    limit = min((_length(r) for rows in timed.values() for r in rows), default=math.inf)
    targets = [] if reach is None else [reach] if target is not None else sorted(set(finals))
    goal = -math.inf if reach is None else reach
    outcomes = [
        _outcome(method, by_method[method.name], winners, goal, timed, limit) for method in methods
    ]
    return Summary(
        problem=str(records[0]["problem"]),
        epochs=int(records[0]["epochs"]),
        outcomes=sorted(outcomes, key=lambda o: medians.get(o.method, math.inf)),
        target=reach,
        target_given=target is not None,
        equal_seconds=limit if math.isfinite(limit) else None,
        no_times=no_times,
        timed=_timed(timed),
        profile_targets=targets,
        profile=performance_profile(winners, targets),
        time_profile=performance_profile(timed, targets, "seconds"),
    )


def plain(summary: Summary) -> dict[str, Any]:
    """The summary as JSON values; what is infinite, because it never came, is null."""
    values = strict(dataclasses.asdict(summary))
    assert isinstance(values, dict)
    return values


def winners_of(records: Sequence[Record], methods: Sequence[Method]) -> dict[str, list[Record]]:
    """Every method's winner at all its seeds; a method of which no trial finished is left out."""
    ended = judged(records)
    return _winners({m.name: [r for r in ended if r["method"] == m.name] for m in methods})


def _winners(by_method: Mapping[str, Sequence[Record]]) -> dict[str, list[Record]]:
    best = {name: winner(rows) for name, rows in by_method.items()}
    return {n: repeats(record, by_method[n]) for n, record in best.items() if record is not None}


def _outcome(
    method: Method,
    records: Sequence[Record],
    winners: Mapping[str, Sequence[Record]],
    target: float,
    timed: Mapping[str, Sequence[Record]],
    limit: float,
) -> Outcome:
    searched = [r["status"] for r in records if r["seed"] == SEARCH_SEED]
    counts = {status: searched.count(status) for status in ("finished", "diverged", "cut")}
    ranges = {name: where.words for name, where in method.space.items()}
    outcome = Outcome(method.name, method.label or method.name, counts, ranges=ranges)
    if method.name not in winners:
        return outcome
    best, clocked = winners[method.name], timed.get(method.name, [])
    settings = best[0]["settings"]
    updates = [cost_to(record, target) for record in best]
    seconds = [cost_to(record, target, "seconds") for record in clocked]
    errors = [error_at(record, limit) for record in clocked]
    return dataclasses.replace(
        outcome,
        settings=settings,
        searched={key: settings[key] for key in method.space if key in settings},
        edges=at_edge(settings, method.space, share=_OUTER),
        seeds=[record["seed"] for record in best],
        final_error=Spread.of(map(final_error, best)),
        updates=Spread.of(updates),
        seconds=Spread.of(seconds) if seconds else None,
        error_then=Spread.of(errors) if errors else None,
    )


def _length(record: Record) -> float:
    """Seconds that a winner trained; a run that diverged early must not set everyone's clock."""
    return math.inf if record["status"] == "diverged" else float(record["curve"]["seconds"][-1])


def _timed(timed: Mapping[str, Sequence[Record]]) -> str:
    if not timed:
        return ""
    record = next(iter(timed.values()))[0]
    made, together = record["provenance"], record["together"]
    device, threads = made.get("device", "?"), made.get("threads")
    seeds = sorted({r["seed"] for rows in timed.values() for r in rows})
    crowd = f"{together} trials trained together" if together > 1 else "one trial at a time"
    place = f"{device} ({threads} thread{'s' * (threads != 1)})" if device == "cpu" else device
    return f"{place}, {crowd}, seed{'s' * (len(seeds) > 1)} {spans(seeds)}"


def spans(numbers: Sequence[int]) -> str:
    """Whole numbers in few words.

    Example:
        >>> spans([0, 1, 2, 5])
        '0 to 2, 5'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)
