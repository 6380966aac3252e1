"""The Hessian of a live loss as the optimizers want it: checked, and safe in half precision.

In float16 the second derivative underflows long before the first, so a loss whose graph holds
float16 (autocast, half parameters) is multiplied by a power of two and the product divided by it. A
product that overflows is measured again at a smaller scale.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from equilibrate.curvature import LossHessian
from equilibrate.curvature.checks import check_loss as check_loss  # for `measuring` too
from equilibrate.curvature.graph import Nodes, holds_float16, leaves, nodes
from equilibrate.distributed import is_sharded
from equilibrate.kernels.capture import capturing
from equilibrate.optim.factors import factors
from equilibrate.optim.state import all_finite

_SCALES = (2.0**15, 2.0**8, 1.0)

_ALREADY_USED = (
    "This loss was already backpropagated. Call optimizer.probe(loss) before loss.backward(), and "
    "give calibrate(losses, release=True) every loss once."
)
_SHARDED = (
    "The parameters are sharded (fully_shard, tensor parallel), so the graph of this loss does not "
    "lead to them and has no second derivative. Pass a closure instead, optimizer.step(closure), "
    "which needs gradients alone."
)
_ELSEWHERE = (
    "The second derivative of this loss cannot be had. Pass a closure instead, "
    "optimizer.step(closure), which needs gradients alone."
)
_ATTENTION = (
    "This attention has no second derivative. Run the forward pass inside "
    "equilibrate.math_attention(optimizer), which takes another kernel in the steps that probe, "
    "and with activation checkpointing probe and backward too; or, for a smooth network, pass a "
    "closure instead, optimizer.step(closure)."
)
_RECOMPUTED = (
    "A checkpoint recomputed its part of this loss in another way than it was computed. Put "
    "optimizer.probe(loss) and loss.backward() inside the contexts that the forward pass was in "
    "(equilibrate.math_attention, sdpa_kernel, autocast)."
)
_CAPTURED_HALF = (
    "This loss was computed in float16, where the scale of a product is chosen on the host: that "
    "cannot be captured in a CUDA graph. Use bfloat16."
)


class LiveLoss:
    """The Hessian of one loss with respect to parameters, those that an optimizer trains."""

    averaged = False  # over ranks: a loss is one rank's own

    def __init__(self, loss: Tensor, parameters: Sequence[Tensor]) -> None:
        """Build the gradient's graph, or say why there is none."""
        check_loss(loss)
        if not parameters:
            raise ValueError(
                "No parameter requires a gradient, so that there is nothing to probe. Call "
                "requires_grad_() on those that are trained."
            )
        if any(map(is_sharded, parameters)):
            raise RuntimeError(_SHARDED)
        self.shared = False  # the gradient is handed on, and the graph freed by the last product
        self.products_left = 0
        self._loss = loss
        self._parameters = parameters
        graph = nodes(loss)  # read once: a large network has thousands
        self.leaves = leaves(graph)
        self._scales = list(_SCALES if holds_float16(graph) else (1.0,))
        self._hessian = self._differentiate(self._scales.pop(0), graph)
        self.present = self._hessian.present
        with _explained_errors():
            self.factors = factors(loss)  # read now: sharing may free the graph
        if not any(self.present):
            raise ValueError(
                "The loss does not depend on any of the parameters. Was it computed from another "
                "model, or from a copy of this one?"
            )

    def __call__(self, vectors: Sequence[Tensor], wanted: Sequence[int]) -> list[Tensor]:
        """Return the rows of H v at the wanted positions, at the largest scale that is finite."""
        products = self._multiply(vectors, wanted)
        if self._scales and capturing(self._loss.device):
            raise RuntimeError(_CAPTURED_HALF)
        while self._scales and not all_finite(products):
            self._hessian = self._differentiate(self._scales.pop(0), nodes(self._loss))
            products = self._multiply(vectors, wanted)
        return products

    def _differentiate(self, scale: float, graph: Nodes) -> LossHessian:
        with _explained_errors():
            return LossHessian(self._loss, self._parameters, scale=scale, graph=graph)

    def _multiply(self, vectors: Sequence[Tensor], wanted: Sequence[int]) -> list[Tensor]:
        self.products_left -= 1
        last = self.shared and self.products_left == 0
        with _explained_errors():
            return self._hessian(vectors, wanted=wanted, last=last)

    def share(self, products: int) -> None:
        """Free the graph with the last of so many products; its gradients are then handed on."""
        self.shared, self.products_left = not self._scales, products

    @property
    def gradients(self) -> Sequence[Tensor | None]:
        """The gradient by parameter with its graph, None where the loss does not depend on one."""
        return self._hessian.live


@contextmanager
def _explained_errors() -> Iterator[None]:
    """Put what to do in front of the reason (torch's own words, mostly)."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        text = str(error)
        raise RuntimeError(f"{_advice(error, text)} The reason: {text}") from error


def _advice(error: RuntimeError, text: str) -> str:
    if isinstance(error, CheckpointError):
        return _RECOMPUTED
    if "second time" in text or "been freed" in text:
        return _ALREADY_USED
    return _ATTENTION if "scaled_dot_product" in text or "ttention" in text else _ELSEWHERE
