"""Where a loss has no curvature to show: what to do, in the words of whoever was called."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from equilibrate.optim.factors import factors, is_a_scale

_ATTENTION = (
    "This attention has no second derivative. Run the forward pass inside "
    "`with torch.nn.attention.sdpa_kernel(SDPBackend.MATH):` where the curvature is measured "
    "(`from torch.nn.attention import SDPBackend`), and with activation checkpointing what follows "
    "it too."
)

_RECOMPUTED = (
    "A checkpoint recomputed its part of the loss in another way than it was computed. Put {} and "
    "loss.backward() inside the contexts that the forward pass was in. The reason: {}"
)

_ASKED = "In a training loop equilibrate.math_attention(monitor) does so where one is due."

_COMPILED = (
    "A compiled model has no second derivative. Give {} the loss of the model before "
    "torch.compile, which has the same parameters. The reason: {}"
)

_SCALED = (
    "This loss is scaler.scale(loss), so that its curvature would be {:g} times too large. Call {} "
    "on the loss itself, then scaler.scale(loss).backward(). If it is a weight of your own, "
    "multiply by the number {:g} in place of a tensor of it."
)

LOOK_AT_THE_BATCH = "If no step was taken yet, look for what is not finite in the batch."


def advice(error: Exception, call: str) -> str:
    """Return what to do about an error of a live loss that `call` was given.

    The words of `LiveLoss` are those of an optimizer's probe; the reason is torch's own.

    Example:
        >>> advice(RuntimeError("... the graph a second time"), "monitor(loss)")
        'This loss was already backpropagated. Call monitor(loss) before loss.backward().'
    """
    reason = _sentence(str(error.__cause__ or error))
    if isinstance(error.__cause__ or error, CheckpointError):
        return _RECOMPUTED.format(call, reason)
    if "second time" in reason or "been freed" in reason:
        return f"This loss was already backpropagated. Call {call} before loss.backward()."
    if "scaled_dot_product" in reason or "ttention" in reason:
        asked = f" {_ASKED}" if call.startswith("monitor") else ""
        return f"{_ATTENTION}{asked} The reason: {reason}"
    if "torch.compile" in reason or "aot_autograd" in reason:
        return _COMPILED.format(call, reason)
    if isinstance(error, RuntimeError) and error.__cause__ is not None:
        return (
            f"The second derivative of this loss cannot be had. The reason: {reason} Use an "
            "operation that torch can differentiate twice, at least where the curvature is "
            "measured."
        )
    return reason


@contextmanager
def advised(call: str) -> Iterator[None]:
    """Raise a RuntimeError that says what to do in place of one from inside a live loss."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise RuntimeError(advice(error, call)) from error


def diverged(loss: float, otherwise: str) -> str:
    """Return what a loss that is not finite says.

    Example:
        >>> diverged(float("nan"), "See the log.")
        'The loss is not finite (nan): the run has diverged. Lower the learning rate. See the log.'
    """
    return (
        f"The loss is not finite ({loss}): the run has diverged. Lower the learning rate. "
        f"{otherwise}"
    )


def refuse_scaled(loss: Tensor, call: str) -> None:
    """Raise where GradScaler has multiplied a loss, or a part of it.

    Example:
        >>> loss = torch.ones((), requires_grad=True) * 1
        >>> refuse_scaled(torch.amp.GradScaler("cpu").scale(loss), "monitor(loss)")
        Traceback (most recent call last):
            ...
        ValueError: This loss is scaler.scale(loss), so that its curvature would be 65536 times ...
        >>> refuse_scaled(loss, "monitor(loss)")
    """
    scale = next(filter(is_a_scale, map(float, factors(loss))), None)
    if scale is not None:
        raise ValueError(_SCALED.format(scale, call, scale))


def _sentence(text: str) -> str:
    """Return a text that ends as a sentence does."""
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
