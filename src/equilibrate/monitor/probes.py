"""Probes with sign vectors, folded into both curvature diagonals at once.

With signs (v_i^2 = 1) one number per element and probe, h = v * Hv, holds both diagonals:
E[h] = H_ii (Jacobi, before the absolute value) and E[h^2] = E[(Hv)_i^2] (equilibration, squared).
So two running means, two vectors in all, give both with Jacobi's standard error, as
Var(h) = E[h^2] - E[h]^2.

What needs every single probe (the error of the equilibration diagonal, its quantiles with errors,
how batches differ) is kept for a sample of the elements: all of a small tensor, `SAMPLE` of a
large one, drawn once.

Both means are kept in units of a power of four near the first largest |h| (`units.py`): h^2 itself
would overflow, or vanish, where h is still a number.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.curvature import draw
from equilibrate.curvature.estimate import HessianOperator
from equilibrate.monitor.units import unit_of

SAMPLE = 1024


def sampled_elements(parameter: Tensor, sample: int = SAMPLE) -> Tensor:
    """Return positions, row-major, of a sample of a tensor's elements; all where they are few.

    Example:
        >>> sampled_elements(torch.zeros(2, 3))
        tensor([0, 1, 2, 3, 4, 5])
    """
    count = parameter.numel()
    if count <= sample:
        return torch.arange(count, device=parameter.device)
    generator = torch.Generator().manual_seed(count)  # torch's own generator stays where it is
    drawn = torch.randint(count, (sample,), generator=generator)
    return drawn.sort().values.to(parameter.device)


class Probes:
    """Running means of h and h^2 for every element, and the history of a sample.

    Example:
        >>> w = torch.tensor([1.0, -2.0], requires_grad=True)
        >>> from equilibrate import LossHessian
        >>> found = Probes([w])
        >>> found.add(LossHessian((w**3).sum(), [w]))
        >>> found.equilibration(), found.jacobi()
        ([tensor([ 6., 12.])], [tensor([ 6., 12.])])
    """

    def __init__(self, parameters: Sequence[Tensor], *, seed: int = 0, sample: int = SAMPLE):
        self._like = [p.detach() for p in parameters]
        self._elements = [sampled_elements(p, sample) for p in self._like]
        self._history: list[list[Tensor]] = [[] for _ in self._like]
        self.batches: list[int] = []  # of each probe, its batch
        self.seed = seed
        wide = [torch.promote_types(p.dtype, torch.float32) for p in self._like]
        self._mean = [torch.zeros_like(p, dtype=d) for p, d in zip(self._like, wide, strict=True)]
        self._mean_square = [torch.zeros_like(m) for m in self._mean]
        self._unit = 0.0  # until a product is not zero

    @property
    def count(self) -> int:
        """The number of probes folded."""
        return len(self.batches)

    @property
    def layers(self) -> int:
        """The number of tensors."""
        return len(self._like)

    @property
    def unit(self) -> float:
        """The power of four that `in_units` counts in: 1 at ordinary scales."""
        return self._unit or 1.0

    @property
    def mean(self) -> list[Tensor]:
        """E[h], the diagonal with its signs, for every element."""
        return self._mean if self.unit == 1 else [m * self.unit for m in self._mean]

    @property
    def mean_square(self) -> list[Tensor]:
        """E[h^2] for every element: infinite or zero where no number is that large or small."""
        squares = self._mean_square
        return squares if self.unit == 1 else [s * self.unit * self.unit for s in squares]

    def add(self, hessian: HessianOperator, *, batch: int = 0, vector: int | None = None) -> None:
        """Fold one more product; `batch` names what the Hessian was measured on.

        `vector` is the number of the vector, the next one unless told.
        """
        number = self.count if vector is None else vector
        vectors = draw("rademacher", self._like, seed=self.seed, probe=number)
        products = list(hessian(vectors))
        self.batches.append(batch)
        self._unit = self._unit or unit_of(products)
        for i, mean in enumerate(self._mean):
            h = vectors[i].to(mean.dtype).mul_(products[i]).div_(self.unit)
            products[i] = vectors[i] = h  # the rest of both is free
            mean.add_(h - mean, alpha=1 / self.count)
            self._history[i].append(self.sampled(i, h))
            square = h.square()
            self._mean_square[i].add_(square.sub_(self._mean_square[i]), alpha=1 / self.count)

    def in_units(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return E[h], E[h^2] and the squared standard error of E[h], of h / `unit`."""
        mean, square = self._mean[layer], self._mean_square[layer]
        variance = (square - mean.square()).clamp_(min=0)
        return mean, square, variance.div_(max(1, self.count - 1))

    def history(self, layer: int) -> Tensor:
        """Return h of one tensor's sampled elements, (probes, elements), in double precision."""
        return torch.stack(self._history[layer]) * self.unit

    def sampled(self, layer: int, values: Tensor) -> Tensor:
        """Return what another tensor of this shape has at the sampled elements, as `history`."""
        return values.detach().flatten()[self._elements[layer]].double().cpu()

    def equilibration(self) -> list[Tensor]:
        """Return sqrt(E[h^2]), the row norms, for every element."""
        return [square.sqrt().mul_(self.unit) for square in self._mean_square]

    def jacobi(self) -> list[Tensor]:
        """Return |E[h]|, the absolute diagonal with its noise, for every element."""
        return [mean.abs() for mean in self.mean]

    def jacobi_variance(self, layer: int) -> Tensor:
        """Return the squared standard error of E[h], for every element of a tensor."""
        return self.in_units(layer)[2].mul_(self.unit).mul_(self.unit)
