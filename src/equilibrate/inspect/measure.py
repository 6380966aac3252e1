"""The inspection itself: what is computed, in which order, within five vectors.

Four vectors of the model's size, beyond the model and its gradient, and what one or two tensors
need in passing: the two means of the probes with a vector and its product while probing, one
diagonal with Lanczos' three during a spectrum. The divisors of a spectrum are made tensor by tensor
as they are needed. A diagonal that is needed again later is measured again rather than kept.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import overload

import torch
from torch import Tensor

from equilibrate.inspect.comparison import distances, scaled_histories
from equilibrate.inspect.findings import DAMPING, PARTS, Budget, Findings, Layer
from equilibrate.inspect.gradients import Gradients
from equilibrate.inspect.layer_spectra import LAYER_WORK, most_curved, with_blocks
from equilibrate.inspect.subject import InspectError, Subject
from equilibrate.monitor.distances import noise_share
from equilibrate.monitor.errors import batch_error, error_by_probes, one_probe_error
from equilibrate.monitor.layers import damp_, diagonal_error, quantiles
from equilibrate.monitor.probes import Probes
from equilibrate.monitor.spectrum import Spectrum, spectrum
from equilibrate.study.progress import Progress
from equilibrate.study.provenance import device_name

COUNTS = [2**i for i in range(9)]


class Divisors(Sequence[Tensor]):
    """D plus damping, each tensor made when it is asked for, from what D / `unit` is made of."""

    def __init__(
        self, made_of: Sequence[Tensor], diagonal: Callable[[Tensor], Tensor], unit: float
    ) -> None:
        self._made_of, self._diagonal, self._unit = made_of, diagonal, unit
        count = sum(t.numel() for t in made_of)
        self._mean = sum(float(diagonal(t).sum()) for t in made_of) / count or 1.0

    def __len__(self) -> int:
        return len(self._made_of)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        """Return one divisor, or several."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return damp_(self._diagonal(self._made_of[index]), DAMPING, self._mean).mul_(self._unit)


def inspect(subject: Subject, budget: Budget, *, quick: bool, progress: Progress) -> Findings:
    """Measure everything; `progress` counts products."""
    started, budget = time.perf_counter(), budget.over(subject.batches)
    spectra = {"none": _spectrum(subject, budget, None, progress)}
    if spectra["none"].radius.value == 0:
        raise InspectError(
            f"{subject.name}: the loss has no curvature at all: it is linear, or constant, in "
            "every parameter. Is the loss the one that is trained on?"
        )
    probes, gradients = _probe(subject, budget, progress), Gradients(subject)
    layers = [_layer(subject, probes, gradients, i) for i in range(len(subject.names))]
    apart, losses = distances(probes, gradients), gradients.losses
    histories, batches, squares = scaled_histories(probes), probes.batches, _squares(probes)
    divisors, chosen = _roots(probes), most_curved(squares, budget.layers)
    del probes, gradients, squares
    spectra["equilibration"] = _spectrum(subject, budget, divisors, progress)
    layers = with_blocks(layers, subject, budget, divisors, chosen, progress)
    taken = [subject.parameters[i] for i in chosen]  # small ones, or fewer, leave work undone
    progress.advance(
        _layer_work(subject.parameters, budget) - _layer_work(taken, budget), computed=False
    )
    parts = [_part(subject, budget, divisors, progress)]
    del divisors
    parts += _parts(subject, budget, progress)
    divisors = _sizes(_probe(subject, budget, progress))
    spectra["jacobi"] = _spectrum(subject, budget, divisors, progress)
    del divisors
    gradients = Gradients(subject)
    divisors = Divisors(gradients.mean_square, torch.sqrt, gradients.unit)
    spectra["gradient"] = _spectrum(subject, budget, divisors, progress)
    by_count = error_by_probes(histories, COUNTS, batches)
    by_probe, by_batch = batch_error(histories, batches)
    return Findings(
        name=subject.name, size=subject.size, batch_size=subject.batch_size, seed=subject.seed,
        device=device_name(subject.parameters[0].device), quick=quick, budget=budget,
        losses=losses, spectra=spectra, layers=layers, distances=apart,
        error_by_probes=list(zip(COUNTS, by_count, strict=True)),
        probe_error=by_probe, batch_error=by_batch,
        small_share=float(histories.square().mean(0).sqrt().quantile(0.05)),
        seconds=time.perf_counter() - started, parts=tuple(parts),
    )  # fmt: skip


def work(subject: Subject, budget: Budget) -> float:
    """Return what `inspect` tells a progress bar in all: products with the whole Hessian, or so.

    Example:
        >>> from equilibrate.inspect.findings import QUICK
        >>> from equilibrate.study.problem import Problem
        >>> data = lambda: (torch.ones(40, 3), torch.ones(40, 1))
        >>> line = Problem("line", lambda seed: torch.nn.Linear(3, 1), data, torch.mul, None, 10)
        >>> subject = Subject(line, seed=0, device=torch.device("cpu"), batches=4)
        >>> work(subject, QUICK)  # 3 * 16 probes, 4 + 5 spectra of 4, 2 * 4 products of a sixth
        85.33333333333333
    """
    budget = budget.over(subject.batches)
    probes = 3 * budget.batches * budget.probes
    spectra = 4 * min(budget.steps * budget.starts, subject.size)
    spectra += (1 + PARTS) * min(budget.part_steps, subject.size)
    return probes + spectra + _layer_work(subject.parameters, budget)


def _layer_work(layers: Sequence[Tensor], budget: Budget) -> float:
    """Return the work of the spectra of so many layers as are in the budget: of the largest."""
    steps = sorted((min(budget.layer_steps, p.numel()) for p in layers), reverse=True)
    return 2 * LAYER_WORK * sum(steps[: budget.layers])


def _spectrum(
    subject: Subject, budget: Budget, divisors: Divisors | None, progress: Progress
) -> Spectrum:
    """Return the spectrum of the first batch's Hessian, before or after preconditioning."""
    return spectrum(
        subject.hessian(0),
        subject.parameters,
        diagonal=divisors,
        steps=budget.steps,
        starts=budget.starts,
        seed=subject.seed,
        told=progress.advance,
    )


def _parts(subject: Subject, budget: Budget, progress: Progress) -> Iterator[Spectrum]:
    """Return the spectra after equilibration by each part of the probes, the same ones again."""
    for part in range(PARTS if budget.probes >= PARTS else 0):
        # Without a name, which would keep these divisors while the next ones are measured.
        yield _part(subject, budget, _roots(_probe(subject, budget, progress, part)), progress)


def _part(subject: Subject, budget: Budget, divisors: Divisors, progress: Progress) -> Spectrum:
    few = replace(budget, steps=budget.part_steps, starts=1)
    return _spectrum(subject, few, divisors, progress)


def _probe(subject: Subject, budget: Budget, progress: Progress, part: int | None = None) -> Probes:
    """Return the probes of all batches, or a part of each one's; one graph alive at a time."""
    probes = Probes(subject.parameters, seed=subject.seed)
    for batch in range(subject.batches):
        hessian = subject.hessian(batch)
        for number in range(part or 0, budget.probes, 1 if part is None else PARTS):
            probes.add(hessian, batch=batch, vector=batch * budget.probes + number)
            progress.advance()
    return probes


def _squares(probes: Probes) -> list[Tensor]:
    """Return E[h^2] in the probes' unit, without E[h]."""
    return [probes.in_units(i)[1] for i in range(probes.layers)]


def _roots(probes: Probes) -> Divisors:
    return Divisors(_squares(probes), torch.sqrt, probes.unit)


def _sizes(probes: Probes) -> Divisors:
    means = [probes.in_units(i)[0] for i in range(probes.layers)]
    return Divisors(means, torch.abs, probes.unit)


def _layer(subject: Subject, probes: Probes, gradients: Gradients, i: int) -> Layer:
    history, (mean, square, variance) = probes.history(i), probes.in_units(i)
    return Layer(
        name=subject.names[i],
        shape=tuple(mean.shape),
        quantiles={
            "equilibration": _quantiles(square.sqrt(), probes.unit),
            "jacobi": _quantiles(mean.abs(), probes.unit),
            "gradient": _quantiles(gradients.mean_square[i].sqrt(), gradients.unit),
        },
        relative_error=diagonal_error(history),
        one_probe_error=one_probe_error(history, probes.batches),
        batch_error=batch_error(history, probes.batches)[1],
        jacobi_noise=noise_share(mean, variance),
        unseen=float((square == 0).double().mean()),
    )


def _quantiles(diagonal: Tensor, unit: float) -> dict[str, float]:
    return {name: unit * q for name, q in quantiles(diagonal).items()}
