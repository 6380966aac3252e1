"""GradScaler: what is undone at the step, what is skipped, and a loss that must not be scaled.

GradScaler multiplies the loss, so that float16 gradients do not underflow, and divides the gradient
again at the step. A probe is of the loss itself: of the scaled one D would be as many times too
large, and every step too short.
"""

import sys
from collections.abc import Sequence

from torch import Tensor
from torch.amp import GradScaler

from equilibrate.distributed import Word, local
from equilibrate.optim.evaluating import Evaluating
from equilibrate.optim.factors import is_a_scale
from equilibrate.optim.live_loss import LiveLoss

_PROBED_SCALED = (
    "The loss that was probed is scaler.scale(loss), so that the diagonal would be {:g} times too "
    "large. Probe the loss itself: optimizer.probe(loss), then scaler.scale(loss).backward(). If "
    "it is a weight of your own, multiply by the number {:g} in place of a tensor of it."
)


class UnderScaler(Evaluating):
    """An optimizer that GradScaler hands its scale to (`_step_supports_amp_scaling`)."""

    def _forget_volatile(self) -> None:
        super()._forget_volatile()
        self._factors: list[Tensor] = []  # that the last probed loss is a multiple of
        self._probed_plainly = False  # a loss that no scale can have multiplied, under a scaler

    def _probe(self, loss: Tensor, share: bool) -> LiveLoss | None:
        hessian = super()._probe(loss, share)
        if hessian is not None:
            self._factors = hessian.factors  # read on the host under a scaler, which waits anyway
        return hessian

    def _refuse_scaled_loss(self) -> None:
        """Raise where the probed loss was multiplied by the scale, and forget the measurement."""
        found, self._factors = self._factors, []
        if not (self._pending or self._warmed) or getattr(self, "found_inf", None) is None:
            return
        scale: Tensor | float | None = getattr(self, "grad_scale", None)
        scale = _calling_scale() if scale is None else float(scale)
        numbers = [float(factor) for factor in found]
        scales = [n for n in numbers if (is_a_scale(n) if scale is None else n == scale != 1)]
        # A weight of the user's own may look like the scale, but hardly from the first probe on.
        self._probed_plainly = self._probed_plainly or not scales
        if not self._probed_plainly:
            self._give_up()
            raise RuntimeError(_PROBED_SCALED.format(scales[0], scales[0]))

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


def _calling_scale() -> float | None:
    """Return the scale of the GradScaler that calls `step`, None where torch's own does not.

    After `scaler.unscale_` it hands none over, and a weight that is a power of two would look so.
    """
    frame = sys._getframe(1).f_back
    while frame is not None:
        # Only of frames of this name: locals that were looked at live as long as their frame.
        caller = frame.f_locals.get("self") if frame.f_code.co_name == "step" else None
        if isinstance(caller, GradScaler):
            return float(caller.get_scale())
        frame = frame.f_back
    return None
