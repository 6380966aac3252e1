"""The squared-gradient diagonal sqrt(E[g^2]) over the batches, RMSProp's and Adam's."""

import torch
from torch import Tensor

from equilibrate.curvature.graph import without_hooks
from equilibrate.inspect.subject import Subject, explained
from equilibrate.monitor.probes import sampled_elements


class Gradients:
    """The mean of g^2 for every element, and g of a sample of them, batch by batch."""

    def __init__(self, subject: Subject) -> None:
        parameters = subject.parameters
        self.losses: list[float] = []
        self.mean_square = [torch.zeros_like(p, dtype=torch.float32) for p in parameters]
        self._elements = [sampled_elements(p) for p in parameters]
        self._history: list[list[Tensor]] = [[] for _ in parameters]
        for batch in range(subject.batches):
            self._add(subject, batch)

    def history(self, layer: int) -> Tensor:
        """Return g of one tensor's sampled elements, (batches, elements)."""
        return torch.stack(self._history[layer])

    def _add(self, subject: Subject, batch: int) -> None:
        loss = subject.loss(batch)
        self.losses.append(float(loss.detach()))
        with explained(subject.name), without_hooks(subject.parameters):
            found = torch.autograd.grad(
                loss, subject.parameters, allow_unused=True, materialize_grads=True
            )
        for i, gradient in enumerate(found):
            self._history[i].append(gradient.flatten()[self._elements[i]].double().cpu())
            self.mean_square[i].addcmul_(gradient, gradient, value=1 / subject.batches)
