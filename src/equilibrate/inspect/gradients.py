"""The squared-gradient diagonal sqrt(E[g^2]) over the batches, RMSProp's and Adam's."""

import torch
from torch import Tensor

from equilibrate.curvature.graph import without_hooks
from equilibrate.inspect.subject import Subject, explained
from equilibrate.monitor.probes import sampled_elements
from equilibrate.monitor.units import unit_of


class Gradients:
    """The mean of g^2 for every element, and g of a sample of them, batch by batch.

    Both are of g / `unit`, a power of four (`monitor.units`): g^2 itself may not be a number.
    """

    def __init__(self, subject: Subject) -> None:
        parameters = subject.parameters
        self.losses: list[float] = []
        wide = [torch.promote_types(p.dtype, torch.float32) for p in parameters]
        self.mean_square = [
            torch.zeros_like(p, dtype=d) for p, d in zip(parameters, wide, strict=True)
        ]
        self._unit = 0.0  # until a gradient is not zero
        self._elements = [sampled_elements(p) for p in parameters]
        self._history: list[list[Tensor]] = [[] for _ in parameters]
        for batch in range(subject.batches):
            self._add(subject, batch)

    @property
    def unit(self) -> float:
        """The power of four that is counted in: 1 at ordinary scales."""
        return self._unit or 1.0

    def history(self, layer: int) -> Tensor:
        """Return g / `unit` of one tensor's sampled elements, (batches, elements)."""
        return torch.stack(self._history[layer])

    def _add(self, subject: Subject, batch: int) -> None:
        loss = subject.loss(batch)
        self.losses.append(float(loss.detach()))
        with explained(subject.name), without_hooks(subject.parameters):
            found = torch.autograd.grad(
                loss, subject.parameters, allow_unused=True, materialize_grads=True
            )
        self._unit = self._unit or unit_of(found)
        for i, (gradient, total) in enumerate(zip(found, self.mean_square, strict=True)):
            g = gradient.to(total.dtype) / self.unit
            self._history[i].append(g.flatten()[self._elements[i]].double().cpu())
            total.addcmul_(g, g, value=1 / subject.batches)
