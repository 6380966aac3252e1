"""What is inspected: a network with its batches, checked, with errors that say what to do."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from equilibrate.optim.live_loss import LiveLoss
from equilibrate.seeding import seeded
from equilibrate.study.problem import Problem, require_number

_NEEDED = "this model has no second derivative, which every number of the report rests on."
_ATTENTION = (
    "This attention has none. Run it by its MATH kernel: with sdpa_kernel(SDPBackend.MATH): "
    "inspect_model(...), or, for the command, the same context inside the model's forward (from "
    "torch.nn.attention import SDPBackend, sdpa_kernel)."
)
_OTHERWISE = (
    "A compiled model: give the one before torch.compile, whose weights are the same. A function "
    "of your own: write its backward with torch operations, without once_differentiable."
)


class InspectError(RuntimeError):
    """Raised where a model cannot be inspected; the text says why and what to do."""


class Subject:
    """The network of a seed on a device, and its losses batch by batch.

    A batch's loss is computed from the same random state every time, so that dropout draws the
    same masks and every product is one with the same Hessian.
    """

    def __init__(self, problem: Problem, *, seed: int, device: torch.device, batches: int) -> None:
        self.name = problem.name
        self.seed = seed
        self.model: nn.Module = problem.network(seed).to(device)
        named = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        if not named:
            raise InspectError(
                f"{problem.name}: the network has no parameter that requires a gradient, so that "
                "there is no curvature to show. Are its tensors registered as nn.Parameter, and "
                "some of them not frozen?"
            )
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self._measure = problem.loss
        inputs, targets = problem.on(device, self.parameters[0].dtype)
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
        order = order.to(device)
        count = min(batches, len(inputs) // problem.batch_size)
        self._batches = [
            (inputs[chosen], targets[chosen])
            for chosen in order[: count * problem.batch_size].view(count, -1)
        ]
        self.batch_size = problem.batch_size

    @property
    def batches(self) -> int:
        """The number of batches at hand: fewer than asked for where there are not more cases."""
        return len(self._batches)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.parameters)

    def loss(self, batch: int) -> Tensor:
        """Return the live loss of a batch, checked."""
        inputs, targets = self._batches[batch]
        with seeded(self.seed + batch), explained(self.name):
            loss = self._measure(self.model(inputs), targets)
        require_number(f"{self.name}: loss", loss)
        if not math.isfinite(float(loss.detach())):
            raise InspectError(
                f"{self.name}: the loss of batch {batch} is {float(loss.detach())}, and what is "
                "not finite has no curvature. Look for inputs or targets that are NaN, for a "
                "logarithm or a division of zero in the loss, and for weights that overflow."
            )
        return loss

    def hessian(self, batch: int, *, layer: int | None = None) -> "Product":
        """Return the Hessian of a batch's loss as a function from vectors to products.

        With a layer's position its own block: the Hessian with respect to that tensor alone.
        """
        return Product(self, batch, self.parameters if layer is None else [self.parameters[layer]])


class Product:
    """H v of one batch's loss; the graph lives as long as this does."""

    def __init__(self, subject: Subject, batch: int, parameters: list[nn.Parameter]) -> None:
        loss = subject.loss(batch)
        self._wanted = range(len(parameters))
        self._name = subject.name
        with explained(subject.name):
            self._live = LiveLoss(loss, parameters)

    def __call__(self, vectors: list[Tensor]) -> list[Tensor]:
        """Multiply; a product that is not finite is explained."""
        with explained(self._name):
            products = self._live(vectors, self._wanted)
        if not all(bool(p.isfinite().all()) for p in products):
            raise InspectError(
                f"{self._name}: the loss is finite but its second derivative is not. Look for a "
                "square root, a norm or a division at zero; a small constant inside cures it. "
                "Where the loss is very large, divide it by its scale."
            )
        return products


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn what torch or the user's code raises into an explanation."""
    try:
        yield
    except (InspectError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        raise InspectError(f"{name}: {_advice(error)}") from error


def _advice(error: Exception) -> str:
    """Return what to do about an error, in words of an inspection: there is no optimizer here."""
    if "second derivative" not in str(error):
        return f"the loss cannot be computed. The reason: {error}"
    reason = str(error.__cause__ or error)  # torch's own
    return f"{_NEEDED} {_ATTENTION if 'ttention' in reason else _OTHERWISE} The reason: {reason}"
