"""Which way to measure curvature costs least for a model, and how right each way is on it.

`probe` differentiates twice; `step(closure)` differentiates once more at two displaced points. What
they cost depends on the model and the device, and whether the second is right on how smooth the
loss is: both are found out here by running them side by side.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

from equilibrate.distributed import is_sharded, norm
from equilibrate.monitor.probe_ways import CLOSURE, ORDINARY, PROBE, SHARED, Loss, Ways, unchanged
from equilibrate.monitor.storages import Storages

_EVERY = 20  # ESGD's default, for what an iteration costs on average
_GRADIENT = "gradient"
_TOLERABLE = 0.2  # of a product; `step(closure)` takes a width at which it moves by less

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


@dataclass(frozen=True)
class Way:
    """One way to measure: what to write, what it costs, and how right it is."""

    call: str
    cost: float  # gradients that an iteration with a probe takes beyond one without
    memory: int  # bytes at its peak, beyond those of an iteration without
    error: float  # of |H v|
    refused: str = ""  # why this way cannot be had here

    @property
    def is_right(self) -> bool:
        """Tell whether it can be had here and measures the Hessian."""
        return not self.refused and self.error <= _TOLERABLE

    def __str__(self) -> str:
        if self.refused:
            return f"{self.call}: cannot be had here. {self.refused}"
        error = "exact" if self.error == 0 else f"error {self.error:.2g}"
        megabytes = self.memory / 1e6
        return f"{self.call}: {self.cost:.2f} gradients, {megabytes:.1f} MB more, {error}"


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
        return "\n".join([*lines, f"Cheapest: {best.call}, which adds {added}."])


def compare_probes(
    model: nn.Module, loss: Loss, *, rounds: int = 10, seed: int = 0
) -> ComparedProbes:
    """Measure what a probe costs, in every way there is, on this model, batch and device.

        c = (iteration with a probe - iteration without) / gradient

    An iteration is a forward and backward pass, `step` of an ESGD made for this and `zero_grad`; a
    gradient is the two passes alone; times are medians over `rounds`, in each of which everything
    runs once. With one probe in n steps a step then takes about c / n gradients more. Memory is at
    the peak, of tensors on a CPU, of the allocator on a GPU.

    The error is that of |H v| by differences against a second derivative's, with the same v; where
    there is no second derivative, how far |H v| moves when the difference is taken over twice the
    width. Piecewise linear networks (ReLU) make it large, and that way wrong however cheap.

    The model is as it was afterwards: parameters, gradients, buffers, torch's generators.

    Args:
        model: the network; its parameters that require a gradient are probed.
        loss: runs the forward pass on one batch, the same every time, and returns the live loss.
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
    if rounds < 1:
        raise ValueError(f"Invalid rounds: {rounds!r}. It must be a whole number >= 1.")
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError(_NOTHING)
    if any(map(is_sharded, parameters)):
        raise ValueError(_SHARDED)
    with unchanged(model):
        if not math.isfinite(float(loss().detach())):
            raise ValueError(_NOT_FINITE)
        return _compared(Ways(parameters, loss, seed), parameters[0].device, rounds)


def _compared(ways: Ways, device: torch.device, rounds: int) -> ComparedProbes:
    errors, refused = _errors(ways)
    calls = (ORDINARY, *errors)
    memory = {call: _peak(partial(ways.run, call), device) for call in calls}
    runs: dict[str, Callable[[], None]] = {call: partial(ways.run, call) for call in calls}
    seconds = _seconds(runs | {_GRADIENT: ways.gradient}, device, rounds)
    unit, ordinary = seconds[_GRADIENT], seconds[ORDINARY]
    had = {
        call: Way(call, (seconds[call] - ordinary) / unit, memory[call] - memory[ORDINARY], error)
        for call, error in errors.items()
    }
    without = {call: Way(call, math.nan, 0, math.nan, why) for call, why in refused.items()}
    return ComparedProbes(unit, tuple((had | without)[call] for call in (PROBE, SHARED, CLOSURE)))


def _errors(ways: Ways) -> tuple[dict[str, float], dict[str, str]]:
    """Return the error of every way that can be had, and why the others cannot."""
    errors: dict[str, float] = {}
    refused: dict[str, str] = {}
    exact: list[Tensor] | None = None
    for call in (PROBE, SHARED, CLOSURE):
        try:
            found = ways.products(call)
            true = exact or (ways.coarser() if call == CLOSURE else found)
        except RuntimeError as error:  # memory that does not suffice, too
            refused[call] = str(error)
        else:
            errors[call], exact = _apart(found, true), true
    return errors, refused


def _apart(found: Sequence[Tensor], true: Sequence[Tensor]) -> float:
    """Return the relative distance of products from true ones."""
    change, size = norm([f - t for f, t in zip(found, true, strict=True)]), norm(true)
    return change / size if size else math.inf if change else 0.0


def _peak(run: Callable[[], None], device: torch.device) -> int:
    """Return the most bytes that one run takes beyond what was there before."""
    if device.type == "cpu":
        counted = Storages()
        with counted:
            run()
        return counted.most
    memory = torch.get_device_module(device)
    memory.synchronize(device)
    before = int(memory.memory_allocated(device))
    memory.reset_peak_memory_stats(device)
    run()
    return int(memory.max_memory_allocated(device)) - before


def _seconds(
    runs: Mapping[str, Callable[[], None]], device: torch.device, rounds: int
) -> dict[str, float]:
    """Return the median seconds of every run; each once in every round, so that drift hits all."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            _wait(device)
            started = time.perf_counter()
            run()
            _wait(device)
            taken[name].append(time.perf_counter() - started)
    return {name: median(times) for name, times in taken.items()}


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.get_device_module(device).synchronize(device)
