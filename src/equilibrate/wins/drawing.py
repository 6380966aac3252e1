"""The pictures of a fight: a summary of all tasks, learning curves and tuning, the fields."""

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from equilibrate.paper.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, axes
from equilibrate.study.fields.problems import psnr
from equilibrate.study.outcome import Spread, final_error
from equilibrate.study.profile import ratios, steps
from equilibrate.wins.fight import Result
from equilibrate.wins.fighters import BASELINE, FIGHTERS
from equilibrate.wins.interval import interval, rank
from equilibrate.wins.reading import best_rival, costs, decibels, scores
from equilibrate.wins.timing import Pace

_COLOURS = {
    "esgd": VERMILION, "esgd-plain": ORANGE, "esgd-row-column": PURPLE, "adamw": BLUE,
    "nadam": SKY, "rmsprop": GREY, "muon": GREEN, "soap": BLACK, "lbfgs": "#8B6914",
}  # fmt: skip
Paces = Mapping[str, Pace]
DPI = 100


def label(fighter: str) -> str:
    """Return the name of a fighter for people."""
    return FIGHTERS[fighter]().label


def summary(results: Sequence[Result], paces: Sequence[Paces]) -> Any:
    """Draw final errors and times to the target, a band a task, and the performance profile."""
    height = 1.6 + len(results) * 0.12 * (2 + max(len(r.task.fighters) for r in results))
    picture, row = axes(1, 3, (14, max(4.2, height)), width_ratios=(4, 4, 3))
    _bands(row[0], results, [_final_gaps(result) for result in results])
    row[0].axvline(0, color=GREY, linewidth=0.7)
    row[0].set(title="final errors", xlabel="dB better than the best rival's median")
    _bands(row[1], results, list(map(_times, results, paces)))
    row[1].axvline(1, color=GREY, linewidth=0.7)
    row[1].set(title=f"time to {label(BASELINE)}'s final error (×: never)", yticklabels=[],
               xlabel=f"as a multiple of {label(BASELINE)}'s")  # fmt: skip
    _logarithmic(row[1])
    _profile(row[2], results, paces)
    _legend(picture, row[0], results, columns=7)
    return picture


def curves(results: Sequence[Result], paces: Sequence[Paces]) -> Any:
    """Draw two panels a task: error against time, and tuning; two tasks a row where many."""
    abreast = 2 if len(results) > 2 else 1
    rows = math.ceil(len(results) / abreast)
    size = (15 if abreast == 2 else 9, 2.7 * rows + 0.5)
    picture, grid = axes(rows, 2 * abreast, size, squeeze=False)
    for panel in grid.flat[2 * len(results) :]:
        panel.set_axis_off()
    for number, (result, pace) in enumerate(zip(results, paces, strict=True)):
        _curves(grid.flat[2 * number], result, pace)
        _rates(grid.flat[2 * number + 1], result)
    _legend(picture, grid.flat[0], results, columns=8 if abreast == 2 else 4)
    return picture


def fields(target: Tensor, faults: Mapping[str, Tensor], title: str) -> Any:
    """Draw the target and every fighter's field, and below each what is wrong with it.

    To be saved with `DPI`: every pixel of a field then covers whole pixels of the file.
    """
    size = (0.2 + 2.72 * (len(faults) + 1), 6.2)
    picture, grid = axes(2, len(faults) + 1, size, squeeze=False)
    picture.set_layout_engine("none")
    for row, column in product(range(2), range(len(faults) + 1)):
        box = (0.2 + 2.72 * column, 0.2 + 2.72 * (1 - row), 2.56, 2.56)
        grid[row, column].set_position([x / size[k % 2] for k, x in enumerate(box)])
        grid[row, column].set_axis_off()
    _grey(grid[0, 0], target, "to be learned")
    for column, (fighter, fault) in enumerate(faults.items(), start=1):
        error = float(fault.square().mean()) / 4
        _grey(grid[0, column], target + fault, f"{label(fighter)}, {psnr(error):.1f} dB")
        shown = _fault(grid[1, column], fault)
    bar = picture.colorbar(shown, ax=grid[1, 0], location="right", fraction=0.3)
    bar.set_label("fault, powers of ten of the peak")
    bar.set_ticks(range(-5, 0))
    picture.text(0.2 / size[0], 1 - 0.3 / size[1], title, fontsize=13)
    return picture


def _fault(panel: Any, fault: Tensor) -> Any:
    # In steps of an eighth of a decade: nobody sees finer ones, and the file is half as large.
    logarithm = (8 * (fault.abs() / 2).clamp(min=1e-6).log10()).round() / 8
    return panel.imshow(logarithm.numpy(), vmin=-5, vmax=-1, cmap="magma", interpolation="nearest")


def _grey(panel: Any, values: Tensor, title: str) -> None:
    panel.imshow(values.numpy(), vmin=-1, vmax=1, cmap="gray", interpolation="nearest")
    panel.set_title(title, fontsize=11)


def _legend(picture: Any, panel: Any, results: Sequence[Result], columns: int) -> None:
    handles = [panel.plot([], [], color=_COLOURS[f], label=label(f))[0] for f in _all(results)]
    picture.legend(handles=handles, loc="outside upper center", ncols=columns)


def _all(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(f for result in results for f in result.task.fighters))


def _shown(result: Result, errors: Sequence[float]) -> list[float]:
    return [psnr(error) if result.task.decibels else error for error in errors]


def _scaled(panel: Any, result: Result) -> None:
    panel.set_ylabel("PSNR, dB" if result.task.decibels else "error")
    if not result.task.decibels:
        panel.set_yscale("log")


def _curves(panel: Any, result: Result, pace: Paces) -> None:
    """Error against time at the measured pace: the median and its interval, point by point."""
    for fighter, records in result.finals.items():
        values = torch.tensor([_shown(result, r["curve"]["error"]) for r in _whole(records)])
        if not len(values):
            continue
        k, found = rank(len(values)), values.sort(0).values
        places = [pace[fighter].until(u) for u in _whole(records)[0]["curve"]["updates"]]
        panel.plot(places, values.median(0).values, color=_COLOURS[fighter])
        band = found[k - 1], found[-k]
        panel.fill_between(places, *band, color=_COLOURS[fighter], alpha=0.15, linewidth=0)
    panel.set(title=result.task.label, xlabel="seconds")
    _scaled(panel, result)


def _whole(records: Sequence[Any]) -> list[Any]:
    return [record for record in records if record["status"] == "finished"]


def _rates(panel: Any, result: Result) -> None:
    """Final error of the tuning against the learning rate over the best one: how wide is it."""
    for fighter, records in result.tuning.items():
        best = result.best[fighter]
        finished = [r for r in records if r["status"] == "finished"]
        ratio = [r["settings"]["lr"] / best for r in finished]
        values = _shown(result, [final_error(r) for r in finished])
        panel.plot(ratio, values, "o", color=_COLOURS[fighter], markersize=3, alpha=0.8)
        for record in records:
            if record["status"] != "finished":
                panel.plot([record["settings"]["lr"] / best], [0.02], "x", color=_COLOURS[fighter],
                           transform=panel.get_xaxis_transform(), markersize=4)  # fmt: skip
    panel.set(title="tuning (×: diverged)", xscale="log", xlabel="learning rate over the best one")
    _scaled(panel, result)


def _bands(panel: Any, results: Sequence[Result], spreads: Sequence[Mapping[str, Spread]]) -> None:
    """Draw a band a task: a dot and an interval a fighter, a cross where the dot is infinite."""
    ends = [x for found in spreads for s in found.values() for x in (s.low, s.median, s.high)]
    finite = [x for x in ends if math.isfinite(x)]
    view = min(finite), 1.5 * max(finite)  # what is infinite is drawn at an end of it
    middles, place = [], 0.0
    for found in spreads:
        middles.append(place + (len(found) - 1) / 2)
        for fighter, spread in found.items():
            _dot(panel, place, spread, view, _COLOURS[fighter])
            place += 1
        panel.axhline(place + 0.5, color=GREY, linewidth=0.4)
        place += 2
    panel.set_yticks(middles, [result.task.name for result in results])
    panel.set_ylim(place - 1.5, -1.5)
    panel.tick_params(axis="y", length=0)


def _dot(panel: Any, place: float, spread: Spread, view: tuple[float, float], colour: str) -> None:
    low, middle, high = (
        min(max(x, view[0]), view[1]) for x in (spread.low, spread.median, spread.high)
    )
    panel.plot([middle], [place], "x" if math.isinf(spread.median) else "o", color=colour,
               markersize=4.5)  # fmt: skip
    if math.isfinite(spread.median):
        panel.plot([low, high], [place, place], color=colour, linewidth=1.4)


def _final_gaps(result: Result) -> dict[str, Spread]:
    """Decibels from the best rival's median, fighter by fighter."""
    bar = statistics.median(map(final_error, result.finals[best_rival(result)]))
    return {
        fighter: interval(decibels(bar, final_error(record)) for record in records)
        for fighter, records in result.finals.items()
    }


def _times(result: Result, pace: Paces) -> dict[str, Spread]:
    """Seconds to the target over the median ones of the baseline, fighter by fighter."""
    found = {score.fighter: score.seconds for score in scores(result, pace)}
    unit = found[BASELINE].median
    # Where half of them never get there, or all are there at once, there is no such multiple.
    unit = unit if 0 < unit < math.inf else 1.0
    return {
        fighter: Spread(s.median / unit, s.low / unit, s.high / unit, s.seeds, s.finite)
        for fighter, s in found.items()
    }


def _profile(panel: Any, results: Sequence[Result], paces: Sequence[Paces]) -> None:
    """The share of (task, instance, level) met within a multiple of the quickest one's time."""
    for fighter, row in ratios(costs(results, paces)).items():
        taus, shares = zip(*steps(row), strict=True)
        end = [*taus, 30.0], [*shares, shares[-1]]
        panel.plot(*end, drawstyle="steps-post", color=_COLOURS[fighter])
    panel.set(title="performance profile", xlabel="time, as a multiple of the quickest")
    panel.set(ylabel="share of levels met", xlim=(1, 30), ylim=(-0.03, 1.03))
    _logarithmic(panel)


def _logarithmic(panel: Any) -> None:
    """Make the axis of x logarithmic, with plain numbers for ticks: 1, 2, 5, 10 and so on."""
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    steps_of_ten = [m * 10.0**e for e in range(-6, 7) for m in (1, 2, 5)]
    panel.set_xticks([tick for tick in steps_of_ten if low <= tick <= high])
    panel.xaxis.set_major_formatter("{x:g}")
    panel.minorticks_off()
