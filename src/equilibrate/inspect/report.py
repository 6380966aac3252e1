"""The report of an inspection: one HTML file that loads nothing from anywhere."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from equilibrate.inspect import plots
from equilibrate.inspect.advice import MOMENTA, rate_limit, suggestions
from equilibrate.inspect.findings import DAMPING, PAIRS, PRECONDITIONERS, Findings
from equilibrate.inspect.numbers import in_words, short
from equilibrate.inspect.place import own_folder
from equilibrate.inspect.style import STYLE
from equilibrate.inspect.verdict import beside, condition, verdict
from equilibrate.monitor.interval import Interval
from equilibrate.paper import html
from equilibrate.study.progress import clock
from equilibrate.study.provenance import versions

_QUICK = (
    "Quick inspection: few probes and short recursions. The intervals say what that leaves open; "
    "{} they are narrower."
)
_ARROW = "An arrow at the left frame: less than the axis shows."


def write(found: Findings, path: Path, *, command: str) -> Path:
    """Write the report; an interrupted write leaves no half of one."""
    body = [*_head(found), _advice(found), _spectra(found), _layers(found), _diagonals(found),
            _noise(found), _origin(found, command)]  # fmt: skip
    page = html.page(f"Curvature of {found.name}", body)
    page = page.replace("</head>", f"<style>{STYLE}</style></head>", 1)
    with own_folder(path) as own:
        partial = Path(own, path.name)
        partial.write_text(page, encoding="utf-8")
        os.replace(partial, path)
    return path


def _head(found: Findings) -> list[str]:
    losses = f"{min(found.losses):.4g} to {max(found.losses):.4g}"
    about = (
        f"{found.size:,} parameters in {len(found.layers)} tensors, seed {found.seed}, batches of "
        f"{found.batch_size}; the loss on {len(found.losses)} batches is {losses}. Hover over any "
        f"mark, or open the tables, for the exact numbers."
    )
    head = [
        f"<h1>Curvature of {html.text(found.name)}</h1>",
        f'<p id="verdict"><strong>{html.text(verdict(found))}</strong> '
        f"{html.text(beside(found))}</p>",
        f"<p>{html.text(about)}</p>",
    ]
    if found.quick:
        head.append(f'<p class="quick">{html.text(_QUICK.format(found.full))}</p>')
    return head


def _advice(found: Findings) -> str:
    rows = [(s.setting, s.value, s.reason) for s in suggestions(found)]
    table = html.table(("setting of ESGD", "suggestion", "reason"), rows)
    return f"<section id='advice'><h2>Suggested settings</h2>{table}</section>"


def _spectra(found: Findings) -> str:
    note = (
        f"Eigenvalues of the first batch's Hessian H and of D^-1/2 H D^-1/2, each D with "
        f"{DAMPING:g} of its layer's mean added. A bar is the share of all {found.size:,} "
        f"directions whose curvature has that sign and size; the better conditioned, the nearer "
        f"the mass is to the two ends. "
    )
    complete = all(spectrum.complete for spectrum in found.spectra.values())
    note += (
        "The model is small: every eigenvalue is exact."
        if complete
        else "The condition number is the largest |curvature| over its mean. Over its median it "
        "is often open: products cannot find the smallest |curvature|, and half of the directions "
        "may not be curved at all; its lower bound is certain."
    )
    drawn = [plots.density(name, spectrum) for name, spectrum in found.spectra.items()]
    header = ("preconditioner", "largest", "smallest", "negative share", "largest / mean",
              "largest / median", "largest / 90% quantile")  # fmt: skip
    rows = [
        (PRECONDITIONERS[name],
         *map(in_words, (s.largest, s.smallest, s.negative_share, condition(s), s.condition(0.5),
                         s.condition(0.9))))
        for name, s in found.spectra.items()
    ]  # fmt: skip
    share = "Negative share: directions of negative curvature beyond 1% of the largest size."
    return _section(
        "spectra", "Spectrum before and after preconditioning", note,
        [*drawn, plots.conditions(found), plots.limits(found)],
        [html.table(header, rows), _note(share), *_limits(found)],
    )  # fmt: skip


def _limits(found: Findings) -> list[str]:
    """The learning rates that overshoot, by preconditioner and momentum."""
    rows = [
        (PRECONDITIONERS[name], *(short(rate_limit(found, name, kind).value) for kind in MOMENTA))
        for name in found.spectra
    ]
    note = (
        "The learning rate beyond which steps along the largest curvature overshoot and grow, "
        "exact for a quadratic, an estimate for a network: 2 / largest without momentum, times "
        "(1 + m) / (1 + 2 m) with Nesterov's momentum m, 1 + m with heavy-ball, and "
        "(1 + b) / (1 - b) where the gradient is averaged with weight b. RMSProp is the squared "
        "gradient without momentum; Adam averages too, with b = beta1: 19 times for 0.9."
    )
    return [html.table(("lr that overshoots", *MOMENTA), rows), _note(note)]


def _layers(found: Findings) -> str:
    taken = [layer for layer in found.layers if layer.blocks]
    note = (
        f"The block of the first batch's Hessian that belongs to one layer alone, before and "
        f"after equilibration, for the {len(taken)} of {len(found.layers)} layers with most of "
        f"the Hessian in them. No layer is sharper than the model: a layer near 1 sets the limit "
        f"of the learning rate by itself; where all are far below, their interaction sets it."
    )
    numbers = ("largest", "largest / median", "largest / 90% quantile")
    header = ("layer", *(f"{n}, {when}" for when in ("before", "after") for n in numbers))
    rows = [
        (layer.name, *(in_words(x) for kind in ("none", "equilibration")
                       for x in vars(layer.blocks[kind]).values()))
        for layer in taken
    ]  # fmt: skip
    return _section(
        "layers", "Sharpness, layer by layer", note, [plots.sharpness(found)],
        [_key(("none", "equilibration")),
         _details("Numbers of every layer", html.table(header, rows))],
    )  # fmt: skip


def _diagonals(found: Findings) -> str:
    note = (
        "Three diagonals of every layer. Where they run in parallel the methods take like steps; "
        "where a layer lies far to one side in one of them alone, that method treats it unlike "
        f"the others. Jacobi of few probes is mostly noise: the table gives its share. {_ARROW}"
    )
    header = ("layer", "shape", "equilibration 5% / median / 95%", "Jacobi", "squared gradient",
              "noise in Jacobi", "no curvature seen")  # fmt: skip
    rows = [
        (layer.name, "×".join(map(str, layer.shape)) or "1",
         *(_quantiles(layer.quantiles[k]) for k in ("equilibration", "jacobi", "gradient")),
         _percent(layer.jacobi_noise), _percent(layer.unseen))
        for layer in found.layers
    ]  # fmt: skip
    apart = [(PAIRS[pair], _distance(interval)) for pair, interval in found.distances.items()]
    return _section(
        "diagonals", "Diagonals, layer by layer", note, [plots.diagonals(found)],
        [_key(("equilibration", "jacobi", "gradient")),
         html.table(("cosine distance, noise taken out", "value [interval]"), apart),
         _details("Numbers of every layer", html.table(header, rows))],
    )  # fmt: skip


def _noise(found: Findings) -> str:
    by_batch = (
        "there is only one batch, so that batches cannot be compared"
        if found.batch_error != found.batch_error
        else f"from batch to batch it changes by {found.batch_error:.1%}, the probes' own "
        f"{found.probe_error:.1%} taken out"
    )
    note = (
        f"On one batch the equilibration diagonal of a single probe is off by "
        f"{found.error_by_probes[0][1]:.0%}, that of k probes by about "
        f"{found.one_probe_error:.0%} / sqrt(k); {by_batch}. Probing longer than that on the same "
        f"batch gains nothing. {_ARROW} Orange there: less than these probes can tell."
    )
    rows = [
        (k, _percent(e), "scatter within a batch" if found.is_measured(k) else "1 / sqrt(k)")
        for k, e in found.error_by_probes
    ]
    header = ("layer", "error of one probe", "error of all probes", "from batch to batch")
    layers = [
        (x.name, *map(_percent, (x.one_probe_error, x.relative_error, x.batch_error)))
        for x in found.layers
    ]
    tables = html.table(("probes", "relative error", "by"), rows) + html.table(header, layers)
    drawn = [plots.probes(found), plots.batches(found)]
    return _section(
        "noise", "How noisy the diagonal is", note, drawn, [_details("Numbers", tables)]
    )


def _origin(found: Findings, command: str) -> str:
    b = found.budget
    layers = sum(bool(layer.blocks) for layer in found.layers)
    rows = [
        ("command", command),
        ("measured", f"{len(found.losses)} batches × {b.probes} probes; {b.steps} Lanczos steps × "
         f"{b.starts} start vectors for each of four spectra; {b.layer_steps} steps for each of "
         f"two spectra of {layers} layers, {b.part_steps} for parts of the probes"),
        ("device", found.device),
        ("time", _span(found.seconds)),
        ("versions", ", ".join(f"{k} {v}" for k, v in versions().items())),
    ]  # fmt: skip
    return f"<section><h2>Origin</h2>{html.table(('what', 'value'), rows)}</section>"


def _section(name: str, title: str, note: str, drawn: Sequence[str], below: Iterable[str]) -> str:
    figures = "\n".join(f"<div>{svg}</div>" for svg in drawn)
    return (
        f'<section id="{name}"><h2>{html.text(title)}</h2><p>{html.text(note)}</p>'
        f'<div class="plots">{figures}</div>{"".join(below)}</section>'
    )


def _span(seconds: float) -> str:
    return f"{clock(seconds)} min" if seconds >= 60 else f"{max(1, round(seconds))} s"


def _details(summary: str, inner: str) -> str:
    return f"<details><summary>{html.text(summary)}</summary>{inner}</details>"


def _note(words: str) -> str:
    return f'<p class="note">{html.text(words)}</p>'


def _key(kinds: Sequence[str]) -> str:
    spans = "".join(
        f'<span><i style="background:{plots.COLOURS[k]}"></i>{html.text(PRECONDITIONERS[k])}</span>'
        for k in kinds
    )
    return f'<p class="key">{spans}</p>'


def _quantiles(q: dict[str, float]) -> str:
    return " / ".join(f"{q[name]:.3g}" for name in ("q05", "median", "q95"))


def _percent(value: float) -> str:
    return "unknown" if value != value else f"{value:.1%}"


def _distance(interval: Interval) -> str:
    """A distance, or only its interval where noise leaves more open than it says."""
    if interval.high - interval.low > 0.3:
        return f"not resolved by these probes: between {interval.low:.2f} and {interval.high:.2f}"
    return f"{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
