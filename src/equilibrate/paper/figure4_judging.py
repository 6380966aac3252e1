"""How Figure 4's claims are judged: numbers over seeds, the literal and the noise-free version."""

import statistics
from collections.abc import Callable, Sequence

from equilibrate.paper.figure import Judgement, Verdict
from equilibrate.paper.figure4_reading import clean, title
from equilibrate.paper.records import Data
from equilibrate.study.outcome import Spread

NEAR = 0.1  # 'near': twice what the paper calls remarkably close
DRIFT = 1.5  # 'diverges': the distance grows by at least this factor
FLOOR = 0.202  # 1 - sqrt(2/pi): noise alone against equilibration


def not_run(claim: str) -> Judgement:
    """Return the judgement of a claim whose records are missing."""
    return Judgement(claim, "not yet run", "", "")


def said(found: Spread, digits: int = 3) -> str:
    """Return a median with its extremes as text."""
    if found.seeds == 1:
        return f"{found.median:.{digits}f}"
    return f"{found.median:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def evidence(*records: Data) -> str:
    """Return what a judgement rests on."""
    names = ", ".join(f"{title(r)} ({len(r['data']['points'])} points)" for r in records)
    count = len(records[0]["data"]["seeds"])
    seeds = f"{count} seeds, medians with extremes over seeds" if count > 1 else "one seed"
    return f"records of figure4: {names}; {seeds}"


def over_seeds(
    found: Sequence[tuple[int, list[float]]], chosen: Callable[[int], bool] = lambda epoch: True
) -> Spread:
    """Return the spread over seeds of each seed's median over some epochs."""
    rows = [values for epoch, values in found if chosen(epoch)]
    return Spread.of(statistics.median(seed) for seed in zip(*rows, strict=True))


def early_and_late(found: Sequence[tuple[int, list[float]]]) -> tuple[Spread, Spread]:
    """Return the distance over the first and the last tenth of training."""
    last = found[-1][0]
    early = [each for each in found if each[0] <= 0.1 * last] or found[:1]
    late = [each for each in found if each[0] >= 0.9 * last]
    return over_seeds(early), over_seeds(late)


def noise_free(record: Data, pair: str) -> tuple[Spread, Spread] | None:
    """Return the lower and upper bounds over ladder points; None where noise leaves nothing."""
    found = [values for _, every in clean(record, pair) for values in every]
    if not found:
        return None
    return Spread.of(low for _, low, _ in found), Spread.of(high for _, _, high in found)


def within(record: Data, pair: str, low: float, high: float) -> bool | None:
    """Tell whether a noise-free distance lies in a range along training; None: not decided."""
    found = noise_free(record, pair)
    if found is None:
        return None
    least, greatest = found[0].median, found[1].median
    if greatest < low or least > high:
        return False
    return True if low <= least and greatest <= high else None


def said_free(record: Data, pair: str) -> str:
    """Return the noise-free distance along training as text."""
    found = noise_free(record, pair)
    if found is None:
        return "lost in noise"
    low, high = found[0].median, found[1].median
    return f"{low:.3f}" if high - low < 5e-4 else f"between {low:.3f} and {high:.3f}"


def verdict(literal: bool, free: bool | None) -> Verdict:
    """Judge by both versions."""
    if not literal:
        return "does not hold"
    return "holds" if free else "holds with a correction"


def said_free_at_end(record: Data, pair: str) -> str:
    """Return the noise-free distance at the last point as text."""
    found = clean(record, pair)
    if not found:
        return "lost in noise"
    _, low, high = (statistics.median(part) for part in zip(*found[-1][1], strict=True))
    return f"{low:.3f}" if high - low < 5e-4 else f"{low:.3f} to {high:.3f}"
