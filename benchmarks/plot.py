"""The pictures of docs/speed.md, drawn from records alone.

    python -m benchmarks.plot FOLDER --out docs/speed-gpu

FOLDER holds what `benchmarks.gpu` or `benchmarks.against` wrote; a picture is drawn for each kind
of record that is there: iteration over SGD's for every method, and overhead by size and frequency.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot, ticker

from benchmarks.frequency import FREQUENCIES, overhead
from benchmarks.measure import ratio, records
from benchmarks.table import latest

matplotlib.use("agg")


def draw_against(found: list[dict[str, Any]], path: Path) -> None:
    """Draw one bar for each method and model: the median ratio to SGD, with quartiles."""
    found = latest([r for r in found if "times" in r], "model", "kind", "method")
    models = list(dict.fromkeys(r["model"] for r in found))
    width = 2.6 + 2.6 * len(models)  # the names of the methods stand once, on the left
    figure, axes = pyplot.subplots(1, len(models), figsize=(width, 6), squeeze=False, sharey=True)
    for axis, model in zip(axes[0], models, strict=True):
        rows = [r for r in found if r["model"] == model][::-1]
        spans = [ratio(r["times"], r["base"]) for r in rows]
        middle = [m for m, _, _ in spans]
        errors = [[m - low for m, low, _ in spans], [high - m for m, _, high in spans]]
        colours = ["C3" if _ours(r["method"]) else "C0" for r in rows]
        axis.barh([r["method"] for r in rows], middle, xerr=errors, color=colours, alpha=0.8)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set(title=model, xlabel="iteration over SGD's", xscale="log")
        _plain(axis.xaxis, [1, 1.5, 2, 3, 5, 10])
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _ours(method: str) -> bool:
    return method.startswith("ESGD") and "torchzero" not in method


def _plain(axis: Any, ticks: list[float]) -> None:
    """Label a logarithmic axis with plain numbers, at these places alone."""
    axis.set_major_locator(ticker.FixedLocator(ticks))
    axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
    axis.set_minor_locator(ticker.NullLocator())


def draw_scaling(found: list[dict[str, Any]], path: Path) -> None:
    """Draw measured overhead as points and what was expected as lines."""
    found = [r for r in found if "times" in r]
    figure, (by_size, by_frequency) = pyplot.subplots(1, 2, figsize=(10, 4))
    sizes = [r["parameters"] for r in found]
    both = [overhead(r, 20) for r in found]
    by_size.plot(sizes, [measured for measured, _ in both], "o", label="measured")
    by_size.plot(sizes, [expected for _, expected in both], label="1 + c / 20")
    by_size.set(xscale="log", xlabel="parameters", ylabel="iteration over SGD's")
    by_size.set_ylim(bottom=1)
    for i, r in enumerate(found):
        both = [overhead(r, n) for n in FREQUENCIES]
        size = f"{r['parameters'] / 1e6:.0f} M"
        by_frequency.plot(FREQUENCIES, [m for m, _ in both], "o", color=f"C{i}", label=size)
        by_frequency.plot(FREQUENCIES, [e for _, e in both], color=f"C{i}")
    by_frequency.set(xscale="log", yscale="log", xlabel="probe_every")
    _plain(by_frequency.xaxis, list(FREQUENCIES))
    _plain(by_frequency.yaxis, [1, 1.2, 1.5, 2, 3, 5, 8])
    for axis in (by_size, by_frequency):
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", default="docs/speed", help="the beginning of the files' names")
    given = parser.parse_args()
    for name, draw in (("against", draw_against), ("scaling", draw_scaling)):
        path = given.folder / f"{name}.jsonl"
        if path.exists():
            draw(records(path), Path(f"{given.out}-{name}.png"))


if __name__ == "__main__":
    main()
