"""The pictures of a fight: final errors, curves against time, a profile, learning rates; fields."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from equilibrate.paper.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, axes
from equilibrate.study.fields.problems import psnr
from equilibrate.study.outcome import final_error
from equilibrate.study.profile import ratios, steps
from equilibrate.wins.fight import Result
from equilibrate.wins.fighters import FIGHTERS
from equilibrate.wins.reading import costs, is_ours

_COLOURS = {
    "esgd": VERMILION, "esgd-plain": ORANGE, "esgd-row-column": PURPLE, "adamw": BLUE,
    "nadam": SKY, "rmsprop": GREY, "muon": GREEN, "soap": BLACK, "lbfgs": "#8B6914",
}  # fmt: skip
Pace = Mapping[str, float]


def label(fighter: str) -> str:
    """Return the name of a fighter for people."""
    return FIGHTERS[fighter]().label


def overview(results: Sequence[Result], paces: Sequence[Pace]) -> Any:
    """Draw one row a task (curves against time, learning rates) and a last row for all of them."""
    rows = len(results) + 1
    picture, grid = axes(rows, 2, (10, 2.9 * rows), squeeze=False)
    for row, (result, pace) in enumerate(zip(results, paces, strict=True)):
        _curves(grid[row, 0], result, pace)
        _rates(grid[row, 1], result)
    _finals(grid[-1, 0], results)
    _profile(grid[-1, 1], results, paces)
    handles = [grid[0, 0].plot([], [], color=_COLOURS[f], label=label(f))[0] for f in _all(results)]
    picture.legend(handles=handles, loc="outside upper center", ncols=4)
    return picture


def fields(target: Tensor, faults: Mapping[str, Tensor], title: str) -> Any:
    """Draw the target and every fighter's field, and below each what is wrong with it."""
    picture, grid = axes(2, len(faults) + 1, (1.9 * (len(faults) + 1), 4.6), squeeze=False)
    for panel in grid.flat:
        panel.set_axis_off()
    _grey(grid[0, 0], target, "to be learned")
    for column, (fighter, fault) in enumerate(faults.items(), start=1):
        error = float(fault.square().mean()) / 4
        _grey(grid[0, column], target + fault, f"{label(fighter)}\n{psnr(error):.1f} dB")
        logarithm = (fault.abs() / 2).clamp(min=1e-6).log10()
        shown = grid[1, column].imshow(logarithm.numpy(), vmin=-5, vmax=-1, cmap="magma")
    bar = picture.colorbar(shown, ax=grid[1, 0], location="left", fraction=0.6)
    bar.set_label("fault, powers of ten of the peak")
    picture.suptitle(title, x=0.01, ha="left")
    return picture


def _all(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(f for result in results for f in result.task.fighters))


def _grey(panel: Any, values: Tensor, title: str) -> None:
    panel.imshow(values.numpy(), vmin=-1, vmax=1, cmap="gray")
    panel.set_title(title, fontsize=8)


def _shown(result: Result, errors: Sequence[float]) -> list[float]:
    return [psnr(error) if result.task.decibels else error for error in errors]


def _scaled(panel: Any, result: Result) -> None:
    panel.set_ylabel("PSNR, dB" if result.task.decibels else "error")
    if not result.task.decibels:
        panel.set_yscale("log")


def _curves(panel: Any, result: Result, pace: Pace) -> None:
    """Error against time at the measured pace: the median instance, and the range of all."""
    for fighter, records in result.finals.items():
        curves = [torch.tensor(_shown(result, r["curve"]["error"])) for r in records]
        length = min(map(len, curves))
        values = torch.stack([curve[:length] for curve in curves])
        places = [u * pace[fighter] for u in records[0]["curve"]["updates"][:length]]
        low, middle, high = values.amin(0), values.median(0).values, values.amax(0)
        panel.plot(places, middle, color=_COLOURS[fighter])
        panel.fill_between(places, low, high, color=_COLOURS[fighter], alpha=0.15, linewidth=0)
    panel.set(title=result.task.label, xlabel="seconds")
    _scaled(panel, result)


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


def _finals(panel: Any, results: Sequence[Result]) -> None:
    """Decibels from the best rival's median, task by task."""
    for row, result in enumerate(results):
        medians = {f: torch.tensor([final_error(r) for r in rows]).median()
                   for f, rows in result.finals.items()}  # fmt: skip
        best = min(m for f, m in medians.items() if not is_ours(f))
        for fighter, records in result.finals.items():
            gaps = [float(10 * (best / final_error(r)).log10()) for r in records]
            panel.plot(gaps, [row] * len(gaps), ".", color=_COLOURS[fighter], alpha=0.8)
    panel.axvline(0, color=GREY, linewidth=0.7)
    panel.set(title="final errors", xlabel="dB better than the best rival's median",
              yticks=range(len(results)), yticklabels=[r.task.name for r in results])  # fmt: skip
    panel.invert_yaxis()


def _profile(panel: Any, results: Sequence[Result], paces: Sequence[Pace]) -> None:
    """The share of (task, instance, level) met within a multiple of the quickest one's time."""
    for fighter, row in ratios(costs(results, paces)).items():
        taus, shares = zip(*steps(row), strict=True)
        end = [*taus, 30.0], [*shares, shares[-1]]
        panel.plot(*end, drawstyle="steps-post", color=_COLOURS[fighter])
    panel.set(title="performance profile", xlabel="time, as a multiple of the quickest")
    panel.set(ylabel="share of levels met", xscale="log", xlim=(1, 30), ylim=(-0.03, 1.03))
