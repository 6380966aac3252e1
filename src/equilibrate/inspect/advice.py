"""What the measurements suggest for ESGD: damping, warm-up, learning rate, each with its reason."""

import math
from dataclasses import dataclass

from equilibrate.inspect.findings import DAMPING, Findings
from equilibrate.monitor.learning_rate import rate_and_edge

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
    return [_learning_rate(found), _damping(found), _warmup(found)]


def rate_limit(found: Findings, preconditioner: str) -> float:
    """Return 2 over the largest eigenvalue: beyond it a step on the quadratic overshoots."""
    largest = found.spectra[preconditioner].largest.value
    return 2 / largest if largest > 0 else math.inf


def _learning_rate(found: Findings) -> Suggestion:
    """Suggest as `monitor.suggest_learning_rate` does: a third of the edge of stability."""
    spectrum = found.spectra["equilibration"]
    ends = spectrum.smallest.value, spectrum.largest.value
    rate, edge = rate_and_edge(*ends)
    with_momentum, _ = rate_and_edge(*ends, momentum=0.9)
    text = (
        f"The eigenvalues of the preconditioned Hessian reach from {spectrum.smallest} to "
        f"{spectrum.largest}. Steps turn unstable beyond 2 over the largest size, {edge:.2g}: "
        f"start at a third of that, with a momentum of 0.9 at {with_momentum:.2g}. Search a factor "
        f"of three to both sides, further up while runs stay stable. This holds for these weights: "
        f"sharpness moves during training, and noise between batches asks for less."
    )
    return Suggestion("lr", f"{rate:.2g}, search {rate / 3:.2g} to {3 * rate:.2g}", text)


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
    one = found.error_by_probes[0][1]
    if math.isnan(one):
        return Suggestion("warmup_probes", "20", "The default: too few probes to tell.")
    count = max(2, math.ceil((one / _WANTED_ERROR) ** 2))
    text = (
        f"One probe leaves a relative error of {one:.0%} in the diagonal, {count} leave "
        f"{one / math.sqrt(count):.0%}."
    )
    if not math.isnan(found.batch_error):
        text += f" Batches themselves differ by {found.batch_error:.0%}, which no warm-up removes."
    return Suggestion("warmup_probes", f"{count} (default 20)", text)
