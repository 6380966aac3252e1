"""What the measurements suggest for ESGD: damping, warm-up, learning rate, each with its reason."""

import math
from dataclasses import dataclass
from typing import Any

from equilibrate.inspect.findings import DAMPING, Findings
from equilibrate.inspect.numbers import in_words
from equilibrate.monitor.denominators import stability_limit
from equilibrate.monitor.interval import Interval
from equilibrate.monitor.suggested_rate import rate_and_edge

_WANTED_ERROR = 0.15  # of the first diagonal; ESGD's default of 20 probes leaves 0.14 to 0.16
_LEAST_DAMPING = 1e-3  # of the shares that docs/defaults.md trains with, the smallest


@dataclass(frozen=True)
class Suggestion:
    """A setting of ESGD, what to give it, and why."""

    setting: str
    value: str
    reason: str


def suggestions(found: Findings) -> list[Suggestion]:
    """Return the suggestions, in the order in which a person would set them."""
    return [_learning_rate(found), _rate_with_momentum(found), _damping(found), _warmup(found)]


MOMENTA: dict[str, dict[str, Any]] = {
    "no momentum": {},
    "Nesterov's, 0.9": {"momentum": 0.9, "nesterov": True},
    "heavy-ball, 0.9": {"momentum": 0.9},
    "averaged (Adam), 0.9": {"betas": (0.9, 0.999)},
}
"""Kinds of momentum, each as the optimizer's settings that mean it; Adam's is the last."""


def rate_limit(found: Findings, preconditioner: str, momentum: str = "no momentum") -> Interval:
    """Return the learning rate beyond which steps on the quadratic overshoot and grow.

        2 / largest                      without momentum
        2 (1 + m) / (1 + 2 m) / largest  with Nesterov's
        2 (1 + m) / largest              with heavy-ball momentum
        2 (1 + b) / (1 - b) / largest    where the gradient is averaged with weight b, as in Adam

    `largest` is the largest eigenvalue after preconditioning (`monitor.denominators`). An averaged
    gradient is heavy-ball momentum with a learning rate of lr (1 - b): hence 19 times that of
    none for Adam's 0.9.
    """
    limit = stability_limit(MOMENTA[momentum])
    largest = found.spectra[preconditioner].largest
    # Where nothing curves upwards no rate overshoots.
    return Interval(limit, limit, limit) / largest


def _learning_rate(found: Findings) -> Suggestion:
    """Suggest as `monitor.suggest_learning_rate` does: a third of the estimated edge."""
    rate, edge = rate_and_edge(*_ends(found))
    spectrum = found.spectra["equilibration"]
    text = (
        f"Without momentum. The eigenvalues of the preconditioned Hessian reach from "
        f"{in_words(spectrum.smallest)} to {in_words(spectrum.largest)}. Steps are estimated to "
        f"turn unstable at 2 over the largest size, {edge:.2g}, which is exact for a quadratic "
        f"alone: start at a third of that. Search a factor of three to both sides, further up "
        f"while runs stay stable. All of this is of one batch at these weights: sharpness moves "
        f"during training, and noise between batches asks for less."
    )
    return Suggestion("lr", f"{rate:.2g}, search {rate / 3:.2g} to {3 * rate:.2g}", text)


def _rate_with_momentum(found: Findings) -> Suggestion:
    rate, nesterov = rate_and_edge(*_ends(found), momentum=0.9, nesterov=True)
    _, heavy_ball = rate_and_edge(*_ends(found), momentum=0.9)
    text = (
        f"Nesterov's or heavy-ball: a third of the edge of Nesterov's, {nesterov:.2g}; that of "
        f"heavy-ball is {heavy_ball:.2g}, but networks fail far below it. They have failed near "
        f"this rate too: search downwards first, by factors of three, and upwards only while runs "
        f"stay stable."
    )
    value = f"{rate:.2g}, search {rate / 9:.2g} to {rate:.2g} first"
    return Suggestion("lr with momentum 0.9", value, text)


def _ends(found: Findings) -> tuple[float, float]:
    spectrum = found.spectra["equilibration"]
    return spectrum.smallest.value, spectrum.largest.value


def _damping(found: Findings) -> Suggestion:
    """Keep the default, unless it would rule more than one element in twenty."""
    value = min(DAMPING, max(_LEAST_DAMPING, found.small_share))
    text = f"One element in twenty has a diagonal below {found.small_share:.1%} of its layer's mean"
    if value == DAMPING:
        text += f", so that the default, {DAMPING:.0%}, rules few of them and bounds their steps."
    else:
        text += (
            f". The default, {DAMPING:.0%}, would rule more than these; less leaves them to their "
            f"own curvature."
        )
    return Suggestion("damping", f'{value:.1g} (damping_kind="relative")', text)


def _warmup(found: Findings) -> Suggestion:
    one = found.one_probe_error
    if math.isnan(one):
        return Suggestion("warmup_probes", "20", "The default: too few probes to tell.")
    count = max(2, math.ceil((one / _WANTED_ERROR) ** 2))
    text = (
        f"k probes leave a relative error of {one:.0%} / sqrt(k) in the diagonal, {count} of them "
        f"{one / math.sqrt(count):.0%}."
    )
    if not math.isnan(found.batch_error):
        text += f" Batches themselves differ by {found.batch_error:.0%}, which no warm-up removes."
    return Suggestion("warmup_probes", f"{count} (default 20)", text)
