"""One measurement of a training run: from the optimizer's state, and from products with H.

Names in a record: `layers/NAME/...` for a tensor, the rest for the whole model; a number with an
interval is three entries, `x`, `x_low` and `x_high`. `docs/monitor.md` explains each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from equilibrate.curvature.graph import nodes, parallel_models, unnoticed_by, without_hooks
from equilibrate.curvature.recomputing import leaving_statistics
from equilibrate.monitor.chance import Chances, Sample, added, chances
from equilibrate.monitor.denominators import Divisor, divisor_of
from equilibrate.monitor.distances import Sums, widened
from equilibrate.monitor.interval import Interval
from equilibrate.monitor.layer_spectra import block_spectra
from equilibrate.monitor.layers import damp_, distance_sums, divided, probed
from equilibrate.monitor.probes import Probes
from equilibrate.monitor.sinks import Record
from equilibrate.monitor.spectrum import Spectrum, spectrum
from equilibrate.monitor.stepping import (
    MONITORS,
    OPTIMIZERS,
    Divisors,
    Rated,
    product_and_limit,
    rate_factors,
    takes_plain_steps,
    why_no_product,
)
from equilibrate.monitor.units import unit_of
from equilibrate.optim.live_loss import LiveLoss

_DAMPING = 1e-2  # ESGD's own share, where the optimizer divides by nothing

Product = Callable[[list[Tensor]], Sequence[Tensor]]


@dataclass(frozen=True)
class Watched:
    """A parameter with its name and its group."""

    name: str
    parameter: Tensor
    group: dict[str, Any]

    def named(self, told: Record) -> Record:
        """Return entries under this layer's name."""
        return {f"layers/{self.name}/{key}": value for key, value in told.items()}


def from_state(optimizer: Optimizer, watched: Sequence[Watched]) -> Record:
    """Return what the optimizer's state says, without any product."""
    told: Record = {}
    for each in watched:
        found = divisor_of(optimizer, each.parameter, each.group)
        if found is not None:
            told |= each.named(divided(found, float(each.group["lr"])))
    return told


@dataclass(frozen=True)
class Effort:
    """How much is measured: products with the Hessian, and the seed of the vectors."""

    probes: int
    steps: int
    seed: int


def from_curvature(
    loss: Tensor,
    optimizer: Optimizer,
    watched: Sequence[Watched],
    effort: Effort,
    layers: Sequence[int] = (),
) -> Record:
    """Return what products with the Hessian of a live loss say.

    `probes` + 2 `steps` of them (`steps` more where learning rates differ), and for each of the
    `layers`, by position, 2 `steps` with its own block of the Hessian.

    Four vectors of the model's size are alive at once beyond its gradient, and what one or two
    tensors need in passing: two means, a vector and its product while probing, then a divisor and
    Lanczos' three, of the model's size or of a layer's.
    """
    told, divisors = _whole(loss, optimizer, watched, effort)
    for i in layers:
        before, after = block_spectra(
            loss, watched[i].parameter, divisors.values[i], steps=effort.steps, seed=effort.seed
        )
        told |= watched[i].named(_from_spectra(before, after))
        group, whose = [watched[i].group], [divisors.whose[i]]
        if not why_no_product(optimizer, group, whose):
            stepped = before if takes_plain_steps(optimizer) else after
            told |= watched[i].named(product_and_limit(group, stepped))
    return told


def _whole(
    loss: Tensor, optimizer: Optimizer, watched: Sequence[Watched], effort: Effort
) -> tuple[Record, Divisors]:
    """Return what the probes and the whole model's spectra say, and what is divided by."""
    parameters = [each.parameter for each in watched]
    live = LiveLoss(loss, parameters)
    everything = range(len(parameters))

    def product(vectors: list[Tensor]) -> Sequence[Tensor]:
        return live(vectors, everything)

    def seen(diagonal: Sequence[Tensor] | None) -> Spectrum:
        return spectrum(
            product, parameters, diagonal=diagonal, steps=effort.steps, starts=1, seed=effort.seed
        )

    found = Probes(parameters, seed=effort.seed)
    for _ in range(effort.probes):
        found.add(product)
    _refuse_infinite(found, everything)
    told = _from_probes(found, optimizer, watched, _gradients(loss, optimizer, watched))
    divisors = _divisors(optimizer, watched, found)
    del found
    plain, after = seen(None), seen(divisors.values)
    told |= _from_spectra(plain, after) | {"preconditioned/diagonal": divisors.owners}
    groups, undivided = [each.group for each in watched], takes_plain_steps(optimizer)
    if reason := why_no_product(optimizer, groups, divisors.whose):
        return told | {"preconditioned/no_product": reason}, divisors
    stepped = plain if undivided else after
    if factors := rate_factors(groups):
        stepped = seen(Rated(divisors.values, factors, undivided))
    return told | product_and_limit(groups, stepped), divisors


def _refuse_infinite(found: Probes, layers: Sequence[int]) -> None:
    """Raise where a product was not finite: nothing that follows would be a number."""
    if not all(isfinite(float(found.in_units(i)[1].sum())) for i in layers):
        raise ValueError(
            "the curvature is not finite at this loss; check that the loss is twice "
            "differentiable here and, if it is very large or very small, divide it by its scale."
        )


def _gradients(loss: Tensor, optimizer: Optimizer, watched: Sequence[Watched]) -> list[Tensor]:
    """Return |g| of this loss in a unit of its own, unless the optimizer keeps its squares."""
    if any(_kind(optimizer, each) == "squared gradient" for each in watched):
        return []
    parameters = [each.parameter for each in watched]
    parallel = unnoticed_by(parallel_models(nodes(loss)))
    with without_hooks(parameters), parallel, leaving_statistics():
        found = list(
            torch.autograd.grad(
                loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
            )
        )
    unit = unit_of(found) or 1.0
    for i, g in enumerate(found):
        found[i] = g.abs().div_(unit)  # not in place: two may be one tensor, or one an expanded one
    return found


def _kind(optimizer: Optimizer, each: Watched) -> str | None:
    found = divisor_of(optimizer, each.parameter, each.group)
    return None if found is None else found.kind


def _from_probes(
    found: Probes, optimizer: Optimizer, watched: Sequence[Watched], gradients: list[Tensor]
) -> Record:
    told: Record = {}
    sums: list[dict[str, Sums]] = []
    samples: list[Sample] = []
    for i, each in enumerate(watched):
        divisor = divisor_of(optimizer, each.parameter, each.group)
        kept = (nan, "none") if divisor is None else (divisor.weight, divisor.kind)
        told |= each.named(probed(found, i, *kept))
        equilibration = _diagonal(divisor, "equilibration", found.unit)
        gradient = gradients[i] if gradients else _diagonal(divisor, "squared gradient")
        sums.append(distance_sums(found, i, equilibration, gradient))
        samples.append(_sample(found, i, equilibration, gradient))
    layers, whole = chances(samples)
    for each, own, chance in zip(watched, sums, layers, strict=True):
        told |= each.named(_distances(own, chance))
    return told | _distances(added(sums), whole)


def _sample(found: Probes, i: int, equilibration: Tensor | None, gradient: Tensor | None) -> Sample:
    own, other = (None if t is None else found.sampled(i, t) for t in (equilibration, gradient))
    size = found.in_units(i)[0].numel()
    return Sample(found.history(i) / found.unit, own, other, size)


def _distances(sums: dict[str, Sums], chance: Chances) -> Record:
    told: Record = {}
    for pair, each in sums.items():
        told |= _entries(f"distance/{pair}", widened(each.distance(), chance.get(pair, nan)))
    return told


def _diagonal(divisor: Divisor | None, kind: str, unit: float = 1.0) -> Tensor | None:
    if divisor is None or divisor.kind != kind:
        return None
    return divisor.diagonal if unit == 1 else divisor.diagonal / unit


def _divisors(optimizer: Optimizer, watched: Sequence[Watched], found: Probes) -> Divisors:
    """Return what every gradient is divided by: the optimizer's, or equilibration as ESGD would."""
    squares = [found.in_units(i)[1] for i in range(len(watched))]
    mean = sum(float(s.sqrt().sum()) for s in squares) / max(1, sum(s.numel() for s in squares))
    values: list[Tensor] = []
    whose: list[str | None] = []
    for each, square in zip(watched, squares, strict=True):
        divisor = divisor_of(optimizer, each.parameter, each.group)
        if divisor is None:
            whose.append(MONITORS if int(square.count_nonzero()) else None)
            values.append(damp_(square.sqrt(), _DAMPING, mean or 1.0).mul_(found.unit))
        else:
            whose.append(OPTIMIZERS + divisor.kind)
            values.append(divisor.divisor.to(square.dtype))
    return Divisors(values, whose)


def _from_spectra(plain: Spectrum, after: Spectrum) -> Record:
    told = {"negative_share": plain.negative_share, "smallest": plain.smallest}
    for name, found in (("", plain), ("preconditioned/", after)):
        told |= {
            f"{name}sharpness": found.largest,
            f"{name}condition_median": found.condition(0.5),
            f"{name}condition_top_tenth": found.condition(0.9),
        }
    entries: Record = {}
    for name, interval in told.items():
        entries |= _entries(name, interval)
    return entries


def _entries(name: str, interval: Interval) -> Record:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
