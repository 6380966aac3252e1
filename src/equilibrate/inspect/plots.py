"""The plots of the report, each from findings alone."""

import math
from collections.abc import Sequence

import torch

from equilibrate.inspect.advice import rate_limit
from equilibrate.inspect.findings import PRECONDITIONERS, Findings, Layer
from equilibrate.inspect.labels import labels
from equilibrate.inspect.numbers import in_words, short
from equilibrate.inspect.svg import LETTER, Plot, decades, log_scale
from equilibrate.inspect.verdict import condition
from equilibrate.monitor.interval import Interval
from equilibrate.monitor.spectrum import Spectrum
from equilibrate.paper.drawing import BLUE, GREEN, GREY, VERMILION

COLOURS = {"none": GREY, "equilibration": BLUE, "jacobi": GREEN, "gradient": VERMILION}
_FLOOR = 1e-5  # of the radius: what is smaller is drawn in the middle
_PER_DECADE = 3
_DOWNWARDS = "Nothing curves upwards: no rate overshoots."
_SHORTEST, _LONGEST = 15, 24  # letters that a plot has room for beside its rows


def _signed(x: float) -> float:
    """Map [-1, 1] to [0, 1] by a logarithm on both sides of the middle."""
    part = log_scale(_FLOOR, 1.0)(abs(x)) * 0.48
    return 0.5 + (0.02 + part if abs(x) >= _FLOOR else 0.0) * math.copysign(1, x)


def bin_edges() -> list[float]:
    """The edges of the density's bins, over the radius: thirds of decades, and the middle."""
    count = round(-math.log10(_FLOOR)) * _PER_DECADE
    positive = [_FLOOR * 10 ** (i / _PER_DECADE) for i in range(count)] + [1.0]
    return [-x for x in reversed(positive)] + positive


def density(name: str, found: Spectrum) -> str:
    """The share of directions by the size and sign of their curvature."""
    radius, least = found.radius.value, max(1e-7, 0.1 / found.size)
    plot = Plot(PRECONDITIONERS[name], _signed, log_scale(least, 1.0))
    plot.y_axis(decades(least, 1.0, 5), "share of directions")
    names = {-1.0: "-1", -1e-2: "-0.01", -1e-4: "-1e-4", 1e-4: "1e-4", 1e-2: "0.01", 1.0: "1"}
    plot.x_axis([*names.items()], f"curvature / {short(radius)}")
    edges = bin_edges()
    wide = [-1.001, *edges[1:-1], 1.001]
    masses = found.masses(torch.tensor(wide, dtype=torch.float64) * radius).tolist()
    for i, mass in enumerate(masses):
        low, high = edges[i], edges[i + 1]
        told = f"curvature {low * radius:.3g} to {high * radius:.3g}: {mass:.3g} of the directions"
        if mass > least:
            plot.bar((low, high), (least, mass), COLOURS[name], told)
    return plot.svg()


def _ranges(title: str, label: str, rows: Sequence[tuple[str, str, Interval]]) -> str:
    """One row for each (name, preconditioner, interval), on a logarithmic axis."""
    numbers = [(i.low, i.value, i.high) for _, _, i in rows]
    finite = [x for row in numbers for x in row if 0 < x < math.inf]
    low, high = min(finite, default=1.0) / 1.5, max(finite, default=1.0) * 1.5
    plot = Plot(title, log_scale(low, high), lambda y: y, height=76 + 22 * len(rows), left=94)
    plot.x_axis(decades(low, high, 5), label)
    for place, (name, kind, interval) in enumerate(rows):
        y = 1 - (place + 0.5) / len(rows)
        plot.row_name(y, name, name)
        plot.range(
            numbers[place], y, COLOURS[kind], f"{PRECONDITIONERS[kind]}: {in_words(interval)}"
        )
    return plot.svg()


def _short(kind: str) -> str:
    return "sq. gradient" if kind == "gradient" else kind


def conditions(found: Findings) -> str:
    """The largest |curvature| over the mean one."""
    rows = [(_short(kind), kind, condition(seen)) for kind, seen in found.spectra.items()]
    return _ranges("Condition number", "largest |curvature| / mean |curvature|", rows)


def limits(found: Findings) -> str:
    """The largest learning rate that does not overshoot: of each without momentum, and of Adam."""
    names = {"gradient": "RMSProp"}
    rows = [(names.get(kind, kind), kind, rate_limit(found, kind)) for kind in found.spectra]
    rows.append(("Adam", "gradient", rate_limit(found, "gradient", "averaged (Adam), 0.9")))
    shown = [row for row in rows if row[2].value < math.inf]
    title = "Learning rate at which a step overshoots"
    return _ranges(title, "no momentum; Adam: beta1 0.9", shown) if shown else _nothing(title)


def _nothing(title: str) -> str:
    """A plot of no rows, which says why."""
    plot = Plot(title, log_scale(1.0, 10.0), lambda y: y, height=96, left=4)
    plot.words(0.0, 0.5, _DOWNWARDS)
    return plot.svg()


def diagonals(found: Findings) -> str:
    """All layers: 5% to 95% of each diagonal, in units of its own median over the model."""
    kinds = ("equilibration", "jacobi", "gradient")
    units = {kind: _median([layer.quantiles[kind]["median"] for layer in found.layers])
             for kind in kinds}  # fmt: skip
    spread = [q / units[kind] for layer in found.layers for kind in kinds
              for q in layer.quantiles[kind].values() if q > 0]  # fmt: skip
    low, high = max(1e-8, min(spread, default=1.0) / 1.5), max(spread, default=1.0) * 1.5
    plot = _rows("Diagonals, 5% to 95% with median", found.layers, low, high, 28)
    plot.x_axis(decades(low, high, 4), "over the model's median")
    for place, layer in enumerate(found.layers):
        for line, kind in enumerate(kinds):
            q = layer.quantiles[kind]
            numbers = (q["q05"] / units[kind], q["median"] / units[kind], q["q95"] / units[kind])
            told = (f"{layer.name}, {PRECONDITIONERS[kind]}: 5% {q['q05']:.3g}, "
                    f"median {q['median']:.3g}, 95% {q['q95']:.3g}")  # fmt: skip
            plot.range(numbers, _row(place, found.layers), COLOURS[kind], told, 7.0 * (line - 1))
    return plot.svg()


def _median(values: Sequence[float]) -> float:
    """The median of what is above zero, or one."""
    positive = sorted(v for v in values if v > 0)
    return positive[len(positive) // 2] if positive else 1.0


def _row(place: int, layers: Sequence[Layer]) -> float:
    return 1 - (place + 0.5) / len(layers)


def _rows(title: str, layers: Sequence[Layer], low: float, high: float, each: float) -> Plot:
    height, names = 78 + each * len(layers), labels([x.name for x in layers], _LONGEST)
    left = 13 + LETTER * max([_SHORTEST, *map(len, names)])
    plot = Plot(title, log_scale(low, high), lambda y: y, height=height, left=left)
    for place, (layer, name) in enumerate(zip(layers, names, strict=True)):
        plot.row_name(_row(place, layers), name, layer.name)
    return plot


def sharpness(found: Findings) -> str:
    """Each layer's own sharpness over the whole model's, before and after equilibration."""
    taken = [layer for layer in found.layers if layer.blocks]
    whole = {kind: found.spectra[kind].largest.value for kind in ("none", "equilibration")}
    if max(whole.values()) <= 0:
        return _nothing("Sharpness of the layers")
    rows = [(place, layer, kind, layer.blocks[kind].largest) for place, layer in enumerate(taken)
            for kind in whole if whole[kind] > 0]  # fmt: skip
    values = [i.value / whole[kind] for _, _, kind, i in rows if i.value > 0]
    low, high = max(1e-8, min(values, default=0.1)) / 1.5, 1.5
    plot = _rows("Sharpness of the layers", taken, low, high, 22)
    plot.x_axis(decades(low, high, 5), "over the model's own")
    for place, layer, kind, largest in rows:
        numbers = Interval(*(getattr(largest, n) / whole[kind] for n in ("value", "low", "high")))
        of_all = short(whole[kind])
        told = f"{layer.name}, {PRECONDITIONERS[kind]}: {in_words(largest)}, the model {of_all}"
        shift = -4.0 if kind == "none" else 4.0
        span = numbers.low, numbers.value, numbers.high
        plot.range(span, _row(place, taken), COLOURS[kind], told, shift)
    return plot.svg()


def probes(found: Findings) -> str:
    """The relative error of one batch's diagonal against the number of probes, with its law."""
    points = [(float(k), e) for k, e in found.error_by_probes if e > 0]
    low, high = 0.01, max([1.0, *(e for _, e in points)])
    last, one = float(found.error_by_probes[-1][0]), found.one_probe_error
    plot = Plot("How many probes are enough", log_scale(1.0, last), log_scale(low, high))
    plot.y_axis([(0.01, "1%"), (0.03, "3%"), (0.1, "10%"), (0.3, "30%"), (1.0, "100%")],
                "relative error of the diagonal")  # fmt: skip
    plot.x_axis([(float(2**i), str(2**i)) for i in range(0, 9, 2)], "probes")
    if one > 0:
        plot.line([(1.0, one), (last, one / math.sqrt(last))], GREY, "4 3")
    for measured, how in ((True, "measured"), (False, "by 1 / sqrt(probes)")):
        shown = [point for point in points if found.is_measured(int(point[0])) == measured]
        told = [f"{k:.0f} probes: {e:.1%}, {how}" for k, e in shown]
        plot.dots(shown, BLUE, told, hollow=not measured)
    _probes_key(plot, low, high, last)
    return plot.svg()


def _probes_key(plot: Plot, low: float, high: float, last: float) -> None:
    """Say in the empty corner what dots and the dashed line are."""

    def at(x: float, y: float) -> tuple[float, float]:  # shares of the frame
        return last**x, low * (high / low) ** y

    plot.dots([at(0.06, 0.24)], BLUE, ["measured"])
    plot.dots([at(0.06, 0.15)], BLUE, ["by 1 / sqrt(probes)"], hollow=True)
    plot.line([at(0.03, 0.06), at(0.09, 0.06)], GREY, "4 3")
    for y, words in ((0.24, "measured within batches"), (0.15, "not measured: on the line"),
                     (0.06, "falls as 1 / sqrt(probes)")):  # fmt: skip
        plot.words(0.12, y, words)


def batches(found: Findings) -> str:
    """Layer by layer: what the probes leave, and what another batch changes."""
    low, errors = 0.005, [e for x in found.layers for e in (x.relative_error, x.batch_error)]
    high = max([0.5, *(1.2 * e for e in errors if e == e)])
    plot = _rows("Noise of the equilibration diagonal", found.layers, low, high, 18)
    ticks = [(0.01, "1%"), (0.03, "3%"), (0.1, "10%"), (0.3, "30%"), (1.0, "100%"), (3.0, "300%")]
    plot.x_axis([t for t in ticks if t[0] <= high], "relative error (blue) and batch (orange)")
    for place, layer in enumerate(found.layers):
        y = _row(place, found.layers)
        pairs = ((layer.relative_error, BLUE, "by the probes"),
                 (layer.batch_error, VERMILION, "from batch to batch"))  # fmt: skip
        for value, colour, words in pairs:
            least = "" if value > 0 else ": less than these probes can show"
            told = f"{layer.name}: {value:.1%} {words}{least}"
            if value > low:
                plot.dots([(value, y)], colour, [told])
            elif value == value:
                plot.arrow(y, colour, told)
    return plot.svg()
