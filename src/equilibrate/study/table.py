"""A comparison as text: a Markdown table that also reads well on a terminal, and its notes."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from equilibrate.study.outcome import Spread
from equilibrate.study.summary import Outcome, Summary, spans

# Marks that every dialect lets a backslash take their meaning from, and those that not every one
# does. An underscore within a word is no mark.
_MARKS = re.compile(r"[\\`*\[\]]|(?<![^\W_])_|_(?![^\W_])")
_CODED = re.compile(r"[&<>|~$]")


def table(summary: Summary) -> str:
    """The whole text: title, table, notes."""
    heads = _heads(summary)
    rows = [_row(summary, outcome) for outcome in summary.outcomes]
    counts = f"{many(len(rows), 'method')}, {many(summary.epochs, 'epoch')}"
    title = f"# {literal(summary.problem)}: {counts}"
    notes = "\n".join(f"- {note}" for note in _notes(summary))
    return f"{title}\n\n{markdown([heads, *rows])}\n\n{notes}\n"


def literal(name: str) -> str:
    r"""A name of the user's that Markdown shows as it is, on one line.

    Example:
        >>> print(literal("*wave* <b> my_file"))
        \*wave\* &#60;b&#62; my_file
    """
    marked = _MARKS.sub(r"\\\g<0>", " ".join(name.split()))
    return _CODED.sub(lambda found: f"&#{ord(found[0])};", marked)


def many(number: int, word: str) -> str:
    """A number of things.

    Example:
        >>> many(1, "epoch"), many(2, "epoch")
        ('1 epoch', '2 epochs')
    """
    return f"{number} {word}{'s' * (number != 1)}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns are padded, so that its source is readable too.

    Example:
        >>> print(markdown([["method", "error"], ["SGD", "3.2"]]))
        | method | error |
        | ------ | ----- |
        | SGD    | 3.2   |
    """
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*escaped, strict=True)]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (escaped[0], ["-" * width for width in widths], *escaped[1:])
    ]
    return "\n".join(f"| {line} |" for line in lines)


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings in a line.

    Example:
        >>> settings_text({"lr": 0.0601, "betas": [0.9, 0.99]})
        'lr 0.0601, betas (0.9, 0.99)'
    """
    return ", ".join(f"{name} {_value(value)}" for name, value in settings.items())


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_value, value))})"
    return str(value)


def _heads(summary: Summary) -> list[str]:
    heads = [
        "method",
        "best settings",
        "searched",
        "final error",
        f"updates to {_number(summary.target)}",
    ]
    if summary.equal_seconds is not None:
        seconds = f"{summary.equal_seconds:.3g}"
        heads += [f"seconds to {_number(summary.target)}", f"error after {seconds} s"]
    return [*heads, "trials"]


def _row(summary: Summary, outcome: Outcome) -> list[str]:
    cells = [literal(outcome.label), literal(settings_text(outcome.searched or {})) or "-"]
    ranges = ", ".join(f"{name} {words}" for name, words in outcome.ranges.items())
    cells += [literal(ranges) or "-"]
    cells += [_spread(outcome.final_error), _cost(outcome.updates, "{:,.0f}")]
    if summary.equal_seconds is not None:
        cells += [_cost(outcome.seconds, "{:,.3g}"), _spread(outcome.error_then)]
    return [*cells, _trials(outcome.trials)]


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    if math.isinf(spread.median):
        return "diverged"
    if spread.seeds == 1:
        return _number(spread.median)
    return f"{_number(spread.median)} [{_number(spread.low)}, {_number(spread.high)}]"


def _cost(spread: Spread | None, form: str) -> str:
    if spread is None:
        return "-"
    median = form.format(spread.median) if math.isfinite(spread.median) else "not reached"
    partly = 0 < spread.finite < spread.seeds
    return f"{median} ({spread.finite} of {spread.seeds} seeds)" if partly else median


def _trials(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "none"


def _number(value: float | None) -> str:
    if value is None:
        return "target"
    return f"{value:.4g}" if math.isfinite(value) else "diverged"


def _notes(summary: Summary) -> list[str]:
    kind = "as given" if summary.target_given else "the worst of the methods' final errors"
    seeds = sorted({seed for outcome in summary.outcomes for seed in outcome.seeds})
    notes = [f"{literal(o.label)}: {edge}; the best may lie outside: write a Method "
             f"with a range further that way"
             for o in summary.outcomes for edge in o.edges]  # fmt: skip
    notes += [f"{literal(o.label)}: no trial finished; search smaller learning rates. "
              f"`equilibrate inspect` tells whether the loss is a number at the start"
              for o in summary.outcomes if o.settings is None]  # fmt: skip
    if any(outcome.trials["diverged"] for outcome in summary.outcomes):
        notes.append("diverged: the error left the finite numbers or ended above where it began")
    if len(seeds) > 1:
        notes.append(
            f"median [least, greatest] over the seeds {spans(seeds)}; seed 0 chose the settings"
        )
    if summary.target is not None:
        notes.append(
            f"target error {_number(summary.target)}: {kind}; counted from where it was measured"
        )
    if any(outcome.updates is not None and not outcome.updates.low for outcome in summary.outcomes):
        notes.append(
            "a run met that target before its first update: updates, seconds and profiles to it "
            "say little; train longer, or name one with --target"
        )
    if summary.no_times and summary.target is not None:
        notes.append(f"times are left out: {summary.no_times}")
    elif summary.timed:
        notes.append(f"times: {summary.timed}")
    return notes
