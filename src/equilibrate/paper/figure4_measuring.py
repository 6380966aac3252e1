"""Probing a stack that trains: every probe on a training batch of its own, all on the device.

The batches are those of epochs that training never reaches, in the same kind of order: what ESGD
and Jacobi SGD would see at these parameters, and training goes on as if nobody had looked.
"""

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from equilibrate.paper import figure4_estimates as estimates
from equilibrate.paper.figure4_estimates import Folds
from equilibrate.paper.figure4_spectrum import Spectrum, spectrum
from equilibrate.paper.figure4_updates import RMSPropStep, directions
from equilibrate.paper.records import Data
from equilibrate.study.batches import Batches
from equilibrate.study.captured import Captured
from equilibrate.study.passes import Hessian
from equilibrate.study.precision import computing
from equilibrate.study.stack import Stack
from equilibrate.study.vector_words import VectorWords


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return everything of each trial in one row, (trials, elements)."""
    return torch.cat([tensor.detach().reshape(len(tensor), -1) for tensor in tensors], 1)


class Prober:
    """Sums over probes of a stack, in folds; one probe is a captured graph on a GPU."""

    def __init__(self, stack: Stack, folds: int, first_epoch: int) -> None:
        self.stack, self.folds, device = stack, folds, stack.device
        seeds = [trial.seed for trial in stack.trials]
        self.batches = Batches(stack.data, stack.trials[0].batch_size, seeds)
        self._next_update = first_epoch * self.batches.updates_per_epoch
        self._words = VectorWords("rademacher", list(stack.parameters.values()))
        self._sizes = tuple(p[0].numel() for p in stack.parameters.values())
        self._seeds = torch.tensor(seeds, device=device)
        self._number = torch.zeros_like(self._seeds)  # of the next vector
        self._fold = torch.zeros(1, dtype=torch.int64, device=device)
        like = flat(list(stack.parameters.values()))
        self.gradients = like.new_zeros(folds, *like.shape)  # the last one of every fold
        self._sums = [torch.zeros_like(self.gradients) for _ in range(3)]
        self._done = 0
        self._probe = Captured(self._once, device)

    def reset(self) -> None:
        """Forget all sums; vectors and batches go on."""
        for sums in self._sums:
            sums.zero_()
        self._fold.zero_()
        self._done = 0

    def probe(self, many: int) -> None:
        """Add probes to the folds, one fold after the other in turn."""
        with computing(self.stack.precision):
            for _ in range(many):
                self._lay_out()
                self._probe()
                self._next_update += 1
        self._done += many

    def _lay_out(self) -> None:
        if self._next_update % self.batches.updates_per_epoch == 0:
            self.batches.begin(self._next_update)

    def _once(self) -> None:
        inputs, targets = self.batches.next()
        hessian = self.stack.passes.hessian(self.stack.parameters, inputs, targets)
        with torch.no_grad():
            drawn = self._words.draw(self._seeds, self._number)
            vectors = [v.to(inputs.dtype).contiguous() for v in drawn]
            products = flat(hessian(vectors)[0])
            gradient = flat([g for g in hessian.gradients if g is not None])
            self.gradients.index_copy_(0, self._fold, gradient.unsqueeze(0))
            parts = (flat(vectors) * products, products.square(), gradient.square())
            for sums, part in zip(self._sums, parts, strict=True):
                sums.index_add_(0, self._fold, part.unsqueeze(0))
            self._number.add_(1)
            self._fold.add_(1).remainder_(self.folds)

    def spectrum(self, steps: int, batches: int) -> Spectrum:
        """Return the extremes of the mean Hessian over some batches, the next ones.

        Never with short products: the sign of a small curvature beside large ones is asked for.
        """
        with computing("float32"):
            hessians = [self._next_hessian() for _ in range(batches)]

        def product(vectors: Tensor) -> Tensor:
            shaped = self._shaped(vectors)
            return torch.stack([flat(hessian(shaped)[0]) for hessian in hessians]).mean(0)

        with computing("float32"), torch.no_grad():
            start = flat(self._words.draw(self._seeds, self._number)).to(self.gradients)
            self._number.add_(1)
            return spectrum(product, start, steps)

    def _next_hessian(self) -> Hessian:
        self._lay_out()
        self._next_update += 1
        return self.stack.passes.hessian(self.stack.parameters, *self.batches.next())

    def _shaped(self, vectors: Tensor) -> list[Tensor]:
        """Cut rows (trials, elements) into the shapes of the parameters."""
        parts = torch.split(vectors, list(self._sizes), 1)
        like = self.stack.parameters.values()
        return [part.reshape(p.shape).contiguous() for part, p in zip(parts, like, strict=True)]

    def sums(self) -> Folds:
        """Return what was measured since the last reset."""
        whole, rest = divmod(self._done, self.folds)
        counts = tuple(whole + (fold < rest) for fold in range(self.folds))
        signed, squares, gradients = self._sums
        return Folds(signed, squares, gradients, counts, self._sizes)


def measure(prober: Prober, counts: Sequence[int], damping: float) -> list[Data]:
    """Probe up to every count in turn and return all distances at each, trial by trial."""
    prober.reset()
    found, done = [], 0
    for count in counts:
        prober.probe(count - done)
        done = count
        found.append({"probes": count, "trials": _numbers(prober, damping)})
    return found


@torch.no_grad()
def _numbers(prober: Prober, damping: float) -> list[Data]:
    optimizer = prober.stack.optimizer
    squares, own = flat(optimizer.state["square_avg"]), optimizer.settings[0]
    folds, rmsprop = prober.sums(), squares.sqrt()
    step = RMSPropStep(squares, own["alpha"], own["eps"])
    tables: dict[str, Any] = {
        "literal": estimates.literal(folds, rmsprop),
        "noise_free": estimates.noise_free(folds, rmsprop),
        "directions": directions(folds, prober.gradients, step, damping),
        "noise_share": estimates.noise_share(folds),
    }
    return [_plain(tables, trial) for trial in range(len(squares))]


def curvature(prober: Prober, steps: int, batches: int) -> list[Data]:
    """Return the extreme curvatures of every trial and the share of the negative one."""
    found = prober.spectrum(steps, batches)
    tables = {f.name: getattr(found, f.name) for f in fields(Spectrum)}
    return [_plain(tables, trial) for trial in range(len(found.least))]


def _plain(value: Any, trial: int) -> Any:
    """Return one trial's numbers, six digits of each; None for what is not a number."""
    if isinstance(value, dict):
        return {name: _plain(inner, trial) for name, inner in value.items()}
    if isinstance(value, estimates.Bounded):
        return [_plain(each, trial) for each in (value.value, value.low, value.high)]
    number = float(value[trial])
    return float(f"{number:.6g}") if math.isfinite(number) else None
