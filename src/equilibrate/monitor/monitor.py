"""The monitor: at chosen steps, what the preconditioner sees, layer by layer.

    monitor = Monitor(model, optimizer, JSONLines("run.jsonl"))
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.probe(loss)  # ESGD's own, first: the monitor shows what it has measured
        monitor(loss)          # before backward: measures when due, else returns at once
        loss.backward()
        ...

It draws its own vectors (torch's generators are never touched), writes to no gradient, parameter or
state, and so leaves the run as it was, to the bit. One measurement is `probes` + 2 `steps` products
with the Hessian of the loss at hand. Among several ranks one measures, the loss of its own batch;
nothing is ever sent, so that no rank waits for a measurement of another.
"""

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.optim import Optimizer

from equilibrate.curvature.checks import check_loss
from equilibrate.distributed import is_sharded
from equilibrate.monitor.given import Named, check_kinds, named_parameters
from equilibrate.monitor.layer_spectra import Choice, checked_choice, due_layers
from equilibrate.monitor.measurement import Effort, Watched, from_curvature, from_state
from equilibrate.monitor.schedule import Schedule
from equilibrate.monitor.sinks import Record, Sink
from equilibrate.monitor.trouble import LOOK_AT_THE_BATCH, advice, diverged, refuse_scaled
from equilibrate.optim.warn import warn_user

_SHARDED = (
    "The parameters are sharded (fully_shard, tensor parallel): the graph of a loss does not lead "
    "to them, and no rank has a whole diagonal, so that the monitor has nothing to show. Watch the "
    "same model unsharded for some steps (DistributedDataParallel works), or inspect it: "
    "equilibrate inspect."
)
_LOOK_BACK = "The last record before this shows learning rate times sharpness beside its limit."


class Monitor:
    """Watch the curvature of a training run, with any torch optimizer.

    Call it with every loss, before backward; beside ESGD and JacobiSGD after the probe, which gives
    them the diagonal that is shown: `optimizer.probe(loss)`, `monitor(loss)`, `loss.backward()`.

    Args:
        model: the network, or (name, parameter) pairs such as `model.named_parameters()`.
        optimizer: ESGD, JacobiSGD or any other of torch's; read, never changed. Its parameters are
            what is watched. Of several, each takes a monitor of its own.
        sink: called with every record, a flat dict of numbers and a few words (`sinks.py`).
        every: calls between measurements, at least.
        budget: the share of the run's time that measuring may take; a measurement that is due
            waits until what was spent is below it, and the first to wait warns. So the whole cost
            stays below that share plus one measurement. None measures every `every` calls,
            whatever it costs.
        probes: vectors for diagonals and their errors.
        steps: products for each of the two spectra, before and after preconditioning.
        layer_spectra: layers whose own block of the Hessian gets these two spectra as well: how
            many at each measurement, in turn, or which, by name. Each takes 2 `steps` products.
        rank: of torch.distributed, the rank that measures; the others return at once. None: every
            rank by itself, each with its own sink, as for models that are trained independently.
        seed: of the monitor's own vectors.
        clock: seconds that have passed; for tests.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        >>> optimizer = torch.optim.Adam(model.parameters())
        >>> seen = []
        >>> monitor = Monitor(model, optimizer, seen.append, every=2, budget=None)
        >>> for _ in range(4):
        ...     loss = model(torch.randn(16, 4)).square().mean()
        ...     record = monitor(loss)
        ...     loss.backward()
        ...     optimizer.step()
        ...     optimizer.zero_grad()
        >>> [record["step"] for record in seen], seen[-1]["sharpness"] > 0
        ([0, 2], True)
    """

    def __init__(
        self,
        model: nn.Module | Named,
        optimizer: Optimizer,
        sink: Sink,
        *,
        every: int = 1000,
        budget: float | None = 0.02,
        probes: int = 4,
        steps: int = 16,
        layer_spectra: Choice = 0,
        rank: int | None = 0,
        seed: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Take what is watched; nothing is measured before the first call."""
        check_kinds(optimizer, sink)
        if probes < 2 or steps < 2:
            raise ValueError(f"probes and steps must be at least 2, got {probes} and {steps}")
        self._names = {parameter: name for name, parameter in named_parameters(model)}
        self._optimizer = _unwrapped(optimizer)
        self._refuse_shards()
        self._sink = sink
        self._probes, self._steps, self._seed = probes, steps, seed
        self._layers = checked_choice(layer_spectra, self._names.values())
        self._rank = rank
        self._schedule = Schedule(every, budget, clock)
        self._clock = clock
        self._measurements = 0
        self._first_loss: float | None = None
        self._said: set[str] = set()  # what was warned of, once each

    @property
    def due(self) -> bool:
        """Whether the next call will measure; asking changes nothing.

        `math_attention(optimizer, monitor)` asks, for a forward pass that must be ready for it.

        Example:
            >>> weight = torch.ones(2, requires_grad=True)
            >>> monitor = Monitor([("w", weight)], torch.optim.SGD([weight]), print, every=2)
            >>> monitor.due, monitor.due
            (True, True)
        """
        return _is_rank(self._rank) and self._schedule.next_is_due()

    def __call__(self, loss: Tensor) -> Record | None:
        """Measure this live loss when due, hand the record to the sink and return it."""
        if not _is_rank(self._rank):
            return None
        if not self._schedule.due():
            if self._schedule.waits:
                self._say_once("budget", self._schedule.told)
            return None
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            check_loss(loss)  # it raises
        started = self._clock()
        record: Record = {"step": self._schedule.calls - 1, **self._height(float(loss.detach()))}
        watched = self._watched()
        record |= from_state(self._optimizer, watched)
        record |= self._curvature(loss, watched)
        self._measurements += 1
        record["seconds"] = self._clock() - started
        self._schedule.spend(record["seconds"])
        self._sink(record)
        return record

    def _height(self, loss: float) -> Record:
        """Return the loss, and how many times the first record's it is, where that is a number."""
        if self._first_loss is None:
            self._first_loss = loss
        if not 0 < self._first_loss < math.inf:
            return {"loss": loss}
        return {"loss": loss, "loss_growth": loss / self._first_loss}

    def _refuse_shards(self) -> None:
        if any(is_sharded(p) for group in self._optimizer.param_groups for p in group["params"]):
            raise ValueError(_SHARDED)

    def _watched(self) -> list[Watched]:
        groups = self._optimizer.param_groups
        pairs = [(p, g) for g in groups for p in g["params"] if p.requires_grad]
        names = [self._names.get(p, f"parameter {i}") for i, (p, _) in enumerate(pairs)]
        return [Watched(name, p, g) for name, (p, g) in zip(names, pairs, strict=True)]

    def _curvature(self, loss: Tensor, watched: list[Watched]) -> Record:
        """Measure, or say once why this loss cannot be."""
        try:
            refuse_scaled(loss, "monitor(loss)")  # first: scaled it may be infinite, and no wonder
            return self._measured(loss, watched)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError) as error:
            return self._without(advice(error, "monitor(loss)"))

    def _measured(self, loss: Tensor, watched: list[Watched]) -> Record:
        value = float(loss.detach())
        if not math.isfinite(value):
            seen = _LOOK_BACK if self._measurements else LOOK_AT_THE_BATCH
            raise ValueError(diverged(value, seen))
        seed = self._seed + self._schedule.calls  # new vectors every time
        effort = Effort(self._probes, self._steps, seed)
        pairs = [(each.name, each.parameter) for each in watched]
        layers = due_layers(self._layers, pairs, self._measurements)
        return from_curvature(loss, self._optimizer, watched, effort, layers)

    def _without(self, reason: str) -> Record:
        text = (
            f"The monitor cannot measure the curvature: {reason} It goes on with what the "
            "optimizer's state shows, and tries again when due."
        )
        self._say_once(reason.partition(".")[0], lambda: text)
        return {"unmeasured": reason}

    def _say_once(self, subject: str, text: Callable[[], str]) -> None:
        if subject not in self._said:
            self._said.add(subject)
            warn_user(text())


def _unwrapped(optimizer: Optimizer) -> Optimizer:
    """Return what Accelerate has wrapped: the class of an optimizer says how it steps.

    By name, for others that keep an `optimizer` take steps of their own (Lookahead).
    """
    wrapped = type(optimizer).__name__ == "AcceleratedOptimizer"
    inner: Optimizer = getattr(optimizer, "optimizer", optimizer) if wrapped else optimizer
    return inner


def _is_rank(rank: int | None) -> bool:
    """Tell whether this process is that rank; alone, every process is."""
    alone = not (dist.is_available() and dist.is_initialized())
    return rank is None or alone or dist.get_rank() == rank
