"""Which way to measure curvature costs least for a model, and how right each way is on it.

`probe` differentiates twice; `step(closure)` differentiates once more at two displaced points. What
they cost depends on the model and the device, and whether the second is right on how smooth the
loss is: both are found out here by running them side by side.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from equilibrate.curvature.checks import check_loss
from equilibrate.curvature.graph import leaves, nodes
from equilibrate.distributed import is_sharded
from equilibrate.monitor.probe_costs import peak, seconds
from equilibrate.monitor.probe_errors import errors, refuse_changing
from equilibrate.monitor.probe_ways import (
    CLOSURE,
    GRADIENT,
    ORDINARY,
    PROBE,
    SHARED,
    Loss,
    Ways,
    unchanged,
    without_gradients,
)

_EVERY = 20  # ESGD's default, for what an iteration costs on average
_TOLERABLE = 0.2  # of a product; `step(closure)` takes a width at which it moves by less

_NO_FUNCTION = (
    "The loss must be a function that computes it anew at each call, got {}. Pass "
    "lambda: criterion(model(x), y)."
)
_SHARDED = (
    "The parameters are sharded (fully_shard, tensor parallel): they can be measured by "
    "optimizer.step(closure) alone, so that there is nothing to compare."
)
_NOTHING = (
    "No parameter requires a gradient, so that there is nothing to probe. Call requires_grad_() on "
    "those that are trained."
)
_NOT_FINITE = (
    "The loss is not finite, so no finite curvature can be measured around this point. Check the "
    "batch that it is computed on."
)
_NO_MODEL = (
    "The model must be a torch.nn.Module, got {}. Pass the model itself, not its parameters."
)
_BACKWARD = (
    "The function must return the loss and not call backward: gradients were there after its first "
    "call. Leave out loss.backward(), optimizer.step() and optimizer.zero_grad()."
)
_HOOKED = (
    "Hooks that run when a gradient has been accumulated (register_post_accumulate_grad_hook) "
    "would run at every iteration that is measured, and what they change cannot be put back: {}. "
    "Remove them, compare, and register them again."
)


@dataclass(frozen=True)
class Way:
    """One way to measure: what to write, what it costs, and how right it is."""

    call: str
    cost: float  # gradients that an iteration with a probe takes beyond one without
    memory: int  # bytes at its peak, beyond those of an iteration without
    error: float  # of |H v|
    refused: str = ""  # why this way cannot be had here
    worst: float = 0.0  # the error in the tensor where it is largest
    where: str = ""  # the name of that tensor
    inside: bool = False  # whether the forward pass must be inside math_attention(optimizer)

    @property
    def is_right(self) -> bool:
        """Tell whether it can be had here and measures the Hessian, of every tensor that counts."""
        return not self.refused and max(self.error, self.worst) <= _TOLERABLE

    @property
    def written(self) -> str:
        """What to write: the call, and what the forward pass must be inside of."""
        return f"{self.call} inside math_attention(optimizer)" if self.inside else self.call

    def __str__(self) -> str:
        if self.refused:
            return f"{self.call}: cannot be had here. {self.refused}"
        error = f"error {self.error:.2g}" if self.error or self.worst else "exact"
        if self.where and self.worst:
            error += f", the worst tensor {self.where} {self.worst:.2g}"
        megabytes = self.memory / 1e6
        wrong = "" if self.is_right else "; not right here: left out"
        return f"{self.written}: {self.cost:.2f} gradients, {megabytes:.1f} MB more, {error}{wrong}"


@dataclass(frozen=True)
class ComparedProbes:
    """What every way costs here, in seconds of a gradient, and which is the cheapest."""

    gradient: float
    ways: tuple[Way, ...]

    @property
    def cheapest(self) -> Way | None:
        """Return the cheapest of the ways that are right; None where none is."""
        return min(
            (way for way in self.ways if way.is_right), key=lambda way: way.cost, default=None
        )

    def __str__(self) -> str:
        best, lines = self.cheapest, [str(way) for way in self.ways]
        if best is None:
            return "\n".join([*lines, "None of them measures the Hessian here."])
        added = f"{best.cost / _EVERY:.0%} of a gradient to every step, one probe in {_EVERY}"
        return "\n".join([*lines, f"Cheapest: {best.written}, which adds {added}."])


def compare_probes(
    model: nn.Module, loss: Loss, *, rounds: int = 10, seed: int = 0
) -> ComparedProbes:
    """Measure what a probe costs, in every way there is, on this model, batch and device.

        c = (iteration with a probe - iteration without) / gradient

    An iteration is a forward and backward pass, `step` of an ESGD made for this and `zero_grad` (in
    the closure, before the passes, where there is one); a gradient is the two passes alone; times
    are medians over `rounds`, in each of which everything runs once. With one probe in n steps a
    step then takes about c / n gradients more. Memory is at the peak, of tensors on a CPU, of the
    allocator on a GPU.

    The error is that of |H v| by differences against a second derivative's, with the same v; where
    there is no second derivative, how far |H v| moves when the difference is taken over twice the
    width. It is told for all parameters together and for the worst tensor, of those that have a
    hundredth of the product's norm; a way is right where both are below a fifth. Piecewise linear
    networks (ReLU) make it large, and that way wrong however cheap.

    Afterwards all is as it was: the model's parameters and buffers, its gradients and those of
    other tensors that the loss leads to, torch's generators. Hooks of gradients run as in any
    backward pass; those after accumulation (`register_post_accumulate_grad_hook`) are refused, for
    what they change cannot be put back. Nor can what the loss does beside computing.

    Args:
        model: the network; its parameters that require a gradient are probed.
        loss: runs the forward pass on one batch, the same every time, and returns the live loss.
            One that differs from call to call is refused; torch's generators are put back before
            every call, so that dropout does not differ.
        rounds: of timing; every iteration has run before.
        seed: of the random vector.

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        >>> x, y = torch.randn(64, 8), torch.randn(64, 1)
        >>> found = compare_probes(model, lambda: nn.functional.mse_loss(model(x), y))
        >>> [way.call for way in found.ways]
        ['probe(loss)', 'probe(loss, backward=True)', 'step(closure)']
        >>> found.cheapest in found.ways
        True
    """
    _check_arguments(model, loss, rounds)
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not named:
        raise ValueError(_NOTHING)
    if any(map(is_sharded, named.values())):
        raise ValueError(_SHARDED)
    with torch.enable_grad(), unchanged(model), without_gradients(_foreign(loss(), named)):
        return _compared(named, loss, rounds, seed)


def _check_arguments(model: Any, loss: Any, rounds: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(_NO_MODEL.format(type(model).__name__))
    if not callable(loss):
        raise TypeError(_NO_FUNCTION.format(type(loss).__name__))
    if not isinstance(rounds, Integral) or rounds < 1:
        raise ValueError(f"Invalid rounds: {rounds!r}. It must be a whole number >= 1.")


def _foreign(loss: Tensor, named: Mapping[str, Tensor]) -> list[Tensor]:
    """Check the first loss; return what it gives gradients to beside the parameters."""
    if any(parameter.grad is not None for parameter in named.values()):
        raise ValueError(_BACKWARD)
    check_loss(loss)
    if not math.isfinite(float(loss.detach())):
        raise ValueError(_NOT_FINITE)
    own = set(named.values())
    foreign = [leaf for leaf in leaves(nodes(loss)) if leaf not in own]
    given = [*named.items(), *((f"no parameter, {tuple(t.shape)}", t) for t in foreign)]
    hooked = [name for name, tensor in given if tensor._post_accumulate_grad_hooks]
    if hooked:
        raise ValueError(_HOOKED.format("; ".join(hooked)))
    return foreign


def _compared(named: Mapping[str, Tensor], loss: Loss, rounds: int, seed: int) -> ComparedProbes:
    ways = Ways(list(named.values()), loss, seed)
    device = next(iter(named.values())).device
    refuse_changing(ways)
    found, refused = errors(ways, list(named))
    calls = (ORDINARY, *found)
    memory = {call: peak(ways, call, device) for call in calls}
    taken = seconds(ways, (*calls, GRADIENT), device, rounds)
    unit, ordinary = taken[GRADIENT], taken[ORDINARY]
    told = {call: Way(call, math.nan, 0, math.nan, why) for call, why in refused.items()}
    for call, error in found.items():
        cost, more = (taken[call] - ordinary) / unit, memory[call] - memory[ORDINARY]
        told[call] = Way(call, cost, more, error.whole, "", error.worst, error.where, error.inside)
    return ComparedProbes(unit, tuple(told[call] for call in (PROBE, SHARED, CLOSURE)))
