"""GradScaler: what is undone at the step, what is skipped, and a loss that must not be scaled.

GradScaler multiplies the loss, so that float16 gradients do not underflow, and divides the gradient
again at the step. A probe is of the loss itself: of the scaled one D would be as many times too
large, and every step too short.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from equilibrate.distributed import Word, local
from equilibrate.optim.evaluating import Evaluating
from equilibrate.optim.live_loss import LiveLoss

_PROBED_SCALED = (
    "The loss that was probed is scaler.scale(loss), so that the diagonal would be {:g} times too "
    "large. Probe the loss itself: optimizer.probe(loss), then scaler.scale(loss).backward()."
)


# GradScaler starts at 65,536 and moves by halves and doubles; a person weighs a loss by less.
_LEAST_SCALE = 256


class UnderScaler(Evaluating):
    """An optimizer that GradScaler hands its scale to (`_step_supports_amp_scaling`)."""

    def _forget_volatile(self) -> None:
        super()._forget_volatile()
        self._multiplied: Tensor | None = None  # by what the last probed loss is multiplied

    def _probe(self, loss: Tensor, share: bool) -> LiveLoss | None:
        factor = multiplied_by(loss)  # read first: sharing may free the graph
        hessian = super()._probe(loss, share)
        if hessian is not None:
            self._multiplied = factor  # read on the host under a scaler alone, which waits anyway
        return hessian

    def _refuse_scaled_loss(self) -> None:
        """Raise where the probed loss was multiplied by the scale, and forget the measurement."""
        multiplied, self._multiplied = self._multiplied, None
        if multiplied is None or getattr(self, "found_inf", None) is None:
            return
        factor = float(multiplied)
        scale: Tensor | None = getattr(self, "grad_scale", None)  # None after scaler.unscale_
        if _is_a_scale(factor) if scale is None else factor == float(scale) != 1:
            self._give_up()
            raise RuntimeError(_PROBED_SCALED.format(factor))

    def _leave_scaler(self) -> None:
        """Forget what GradScaler has set for a step that failed: it would, after one that did not.

        Of what is left its next step makes an error of its own.
        """
        for name in ("grad_scale", "found_inf"):
            self.__dict__.pop(name, None)

    def _overflowed(self) -> bool:
        """Tell whether GradScaler found an overflow in this rank's gradients."""
        found_inf = getattr(self, "found_inf", None)
        return found_inf is not None and bool(found_inf)

    def _skipped_by_scaler(self, words: list[Word]) -> bool:
        """Skip the step, and forget what it measured, where GradScaler found an overflow."""
        if not (any(word.skipped for word in words) if words else self._overflowed()):
            return False
        self._give_up()
        return True

    def _unscale(self, gradients: Sequence[Tensor]) -> None:
        """Undo GradScaler's factor, unless the user has called `unscale_`."""
        factor = getattr(self, "grad_scale", None)
        if factor is None:
            return
        for gradient in map(local, gradients):
            gradient.div_(factor.to(gradient.device))


def _is_a_scale(factor: float) -> bool:
    return factor >= _LEAST_SCALE and math.frexp(factor)[0] == 0.5


def multiplied_by(loss: Any) -> Tensor | None:
    """Return the tensor of one float32 number that a loss is the product with, if it is one.

    Example:
        >>> import torch
        >>> loss = torch.ones((), requires_grad=True)
        >>> multiplied_by(torch.amp.GradScaler("cpu", init_scale=4.0).scale(loss))
        tensor(4.)
        >>> multiplied_by(loss * 4) is None  # by a plain number
        True
    """
    node = getattr(loss, "grad_fn", None)
    if node is None or node.name() != "MulBackward0":
        return None
    factor = node._saved_other
    if not isinstance(factor, Tensor) or factor.numel() != 1 or factor.requires_grad:
        return None
    return factor if factor.dtype is torch.float32 else None  # a plain number: float64 or int64
