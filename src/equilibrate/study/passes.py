"""Forward and backward passes of a stack: losses, gradients and products of every trial at once.

On a CPU everything runs as it is written. On a GPU the plain pass is compiled, forward and the
backward that belongs to it, once for a problem and shared by all methods. A compiled forward pass
has no second derivative: the probing pass is a double backward, or, where the run is long enough to
pay for compiling it, one function (the R-operator, forward over reverse).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from equilibrate.curvature import LossHessian
from equilibrate.study.dense import dense_forward
from equilibrate.study.fused import fused
from equilibrate.study.precision import forward
from equilibrate.study.problem import Problem

Parameters = dict[str, Tensor]


class Hessian(Protocol):
    """Products with the Hessian of the summed loss, and the gradients that come with them."""

    @property
    def gradients(self) -> Sequence[Tensor | None]:
        """The gradient of every trial's loss."""
        ...

    def __call__(self, vectors: Sequence[Tensor]) -> tuple[Sequence[Tensor], Tensor]:
        """Return every trial's own product H v, and for each trial whether all of it is finite."""
        ...


class Passes:
    """The passes of one problem's network in one precision on one device."""

    def __init__(self, problem: Problem, precision: str, device: torch.device) -> None:
        self.problem, self.precision, self.device = problem, precision, device
        self.network: nn.Module = problem.network(0).to(device)
        self._dense = dense_forward(self.network)
        self._losses = fused(self.losses, device)
        self._products = fused(self._gradients_and_products, device)

    def outputs(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return the output of every trial's network on its own inputs."""

        def one(parameters: Parameters, x: Tensor) -> Any:
            return functional_call(self.network, parameters, (x,))

        with forward(self.precision, self.device):
            if self._dense is not None and inputs.dim() == 3:
                return self._dense(parameters, inputs)
            outputs: Tensor = torch.vmap(one)(parameters, inputs)
            return outputs

    def losses(self, parameters: Parameters, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every trial on its own batch."""
        losses: Tensor = torch.vmap(self.problem.loss)(self.outputs(parameters, inputs), targets)
        return losses

    def errors(self, parameters: Parameters, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the reported error of every trial on cases that all share."""
        trials = len(next(iter(parameters.values())))
        outputs = self.outputs(parameters, inputs.expand(trials, *inputs.shape))
        errors: Tensor = torch.vmap(self.problem.reported, (0, None))(outputs, targets)
        return errors

    def gradients(
        self, parameters: Parameters, inputs: Tensor, targets: Tensor
    ) -> Sequence[Tensor | None]:
        """Return the gradient of every trial's loss, in the order of the parameters."""
        total = self._losses(parameters, inputs, targets).sum()
        return torch.autograd.grad(total, list(parameters.values()), allow_unused=True)

    def hessian(
        self, parameters: Parameters, inputs: Tensor, targets: Tensor, *, compiled: bool = False
    ) -> Hessian:
        """Return the Hessian of every trial's loss on its own batch; `compiled` on a GPU alone."""
        if not compiled:
            total = self.losses(parameters, inputs, targets).sum()
            return _LiveHessian(LossHessian(total, list(parameters.values())))
        point = {name: _apart(p.detach()) for name, p in parameters.items()}
        return _FunctionHessian(self._products, point, inputs, targets)

    def _gradients_and_products(
        self,
        parameters: Parameters,
        vectors: Sequence[Tensor],
        inputs: Tensor,
        targets: Tensor,
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        def total(values: list[Tensor]) -> Tensor:
            named = dict(zip(parameters, values, strict=True))
            return self.losses(named, inputs, targets).sum()

        point = list(parameters.values())
        gradients, products = torch.func.jvp(  # type: ignore[misc]
            torch.func.grad(total), (point,), (list(vectors),)
        )
        return gradients, products, _all_finite(products)


def _apart(tensor: Tensor) -> Tensor:
    """Return a tensor in memory of its own: torch differentiates no slices forward."""
    own = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
    return tensor if own else tensor.clone()


def _all_finite(products: Sequence[Tensor]) -> Tensor:
    """Tell for every trial whether all of its product is finite."""
    # Row by row first: few trials are too few for a device to share the work.
    rows = [product.reshape(len(product), -1, product.shape[-1]) for product in products]
    return torch.stack([row.abs().amax(-1).amax(-1) for row in rows]).isfinite().all(0)


class _LiveHessian:
    """The Hessian of a live loss, by double backward."""

    def __init__(self, hessian: LossHessian) -> None:
        self._hessian = hessian
        self.gradients = hessian.gradients

    def __call__(self, vectors: Sequence[Tensor]) -> tuple[Sequence[Tensor], Tensor]:
        products = self._hessian(vectors)
        return products, _all_finite(products)


class _FunctionHessian:
    """The Hessian as a function of parameters; gradients come with the first product."""

    def __init__(
        self, function: Callable[..., Any], parameters: Parameters, inputs: Tensor, targets: Tensor
    ) -> None:
        self._function = function
        self._where = parameters, inputs, targets
        self.gradients: Sequence[Tensor | None] = []

    def __call__(self, vectors: Sequence[Tensor]) -> tuple[Sequence[Tensor], Tensor]:
        parameters, inputs, targets = self._where
        self.gradients, products, finite = self._function(
            parameters, list(vectors), inputs, targets
        )
        return products, finite


@lru_cache(maxsize=4)
def passes(problem: Problem, precision: str, device: torch.device) -> Passes:
    """Return the passes of a problem, the same ones (and their compiled code) for every method."""
    return Passes(problem, precision, device)
