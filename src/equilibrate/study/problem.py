"""What a study trains: a problem is a network, its data, a loss and the error that is reported.

A problem of your own is a few lines in a file of yours:

    import torch
    from equilibrate.study import Problem

    def data():
        x = torch.linspace(-1, 1, 1000).unsqueeze(1)
        return x, torch.sin(8 * x)

    wave = Problem(
        name="wave",
        model=lambda seed: torch.nn.Sequential(
            torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
        ),
        data=data,
        loss=torch.nn.functional.mse_loss,
    )

and `equilibrate compare my_file:wave` compares optimizers on it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from equilibrate.seeding import seeded
from equilibrate.study import form
from equilibrate.study.fingerprint import architecture, content, described
from equilibrate.study.naming import digest

Measure = Callable[[Any, Any], Tensor]


class ProblemError(ValueError):
    """Raised where a problem cannot be found or cannot be trained; the text says what to do."""


@dataclass(frozen=True)
class Problem:
    """A training problem.

    Args:
        name: a short name for tables and plots.
        model: called with a seed, returns the network of that seed on the CPU. torch's generator
            has been seeded with it, so a model that initialises itself may ignore the argument.
        data: called once, returns (inputs, targets): two tensors held in memory, whose first
            dimension counts cases.
        loss: loss(output, targets), a scalar: the mean over the cases of a batch.
        error: what is reported, a mean over cases as well; None reports the loss.
        batch_size: cases in a batch. The last, incomplete batch of an epoch is left out.

    Example:
        >>> problem = Problem(
        ...     name="line",
        ...     model=lambda seed: nn.Linear(2, 1),
        ...     data=lambda: (torch.ones(8, 2), torch.ones(8, 1)),
        ...     loss=nn.functional.mse_loss,
        ...     batch_size=4,
        ... )
        >>> problem.updates_per_epoch
        2
    """

    name: str
    model: Callable[[int], nn.Module]
    data: Callable[[], tuple[Tensor, Tensor]]
    loss: Measure
    error: Measure | None = None
    batch_size: int = 200

    def __post_init__(self) -> None:
        self._require(form.model_mistake(self.model) or form.data_mistake(self.data))
        self._require(form.measure_mistake("loss", self.loss))
        if self.error is not None:
            self._require(form.measure_mistake("error", self.error))

    def _require(self, mistake: str | None) -> None:
        if mistake:
            raise ProblemError(f"{self.name}: {mistake}")

    def network(self, seed: int) -> nn.Module:
        """Return the network of a seed, leaving torch's own generators where they were."""
        with seeded(seed):
            network = self.model(seed)
        self._require(form.network_mistake(network))
        return network

    @cached_property
    def cases(self) -> tuple[Tensor, Tensor]:
        """The inputs and targets, checked."""
        found = self.data()
        self._require(form.cases_mistake(found))
        inputs, targets = found
        if len(inputs) != len(targets):
            raise ProblemError(
                f"{self.name}: data() returned {len(inputs)} inputs and {len(targets)} targets; "
                f"every input needs its target"
            )
        if not 1 <= self.batch_size <= len(inputs):
            raise ProblemError(
                f"{self.name}: a batch of {self.batch_size} cannot be taken from {len(inputs)} "
                f"cases; give Problem a batch_size between 1 and {len(inputs)}"
            )
        return inputs, targets

    def on(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the cases on a device, real numbers in a dtype; one tensor where they are one."""
        inputs, targets = self.cases
        moved = _moved(inputs, device, dtype)
        return moved, moved if targets is inputs else _moved(targets, device, dtype)

    def check(self, device: torch.device) -> None:
        """Raise ProblemError where nothing can be trained, or a measure is not one number."""
        network = self.network(0).to(device)
        if not any(p.requires_grad for p in network.parameters()):
            raise ProblemError(
                f"{self.name}: the network has no parameter that requires a gradient, so that "
                f"there is nothing to train. Does model() register its tensors as nn.Parameter, "
                f"and leave some of them unfrozen?"
            )
        dtype = next(network.parameters()).dtype
        inputs, targets = (_moved(t[: self.batch_size], device, dtype) for t in self.cases)
        used = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=used), torch.no_grad():  # a network may drop units
            with _explained(f"{self.name}: the network's output", inputs):
                output = network(inputs)
            for what, measure in (("loss", self.loss), ("error", self.reported)):
                with _explained(f"{self.name}: the {what}", output, targets):
                    value = measure(output, targets)
                require_number(f"{self.name}: {what}", value)

    @property
    def updates_per_epoch(self) -> int:
        """Whole batches in an epoch."""
        return len(self.cases[0]) // self.batch_size

    @property
    def reported(self) -> Measure:
        """The error that is reported: `error`, or the loss where there is none."""
        return self.error or self.loss

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what is trained: first network, data, loss, error, batch size; their own code.

        It is a part of every trial's key, so that records of a problem that has been changed are
        not taken for records of this one.
        """
        network, (inputs, targets) = self.network(0), self.cases
        first = content(inputs)
        last = first if targets is inputs else content(targets)  # the data may be large
        tensors = [*map(content, network.state_dict().values()), first, last]
        measures = [described(self.loss), described(self.reported)]
        own = architecture(network)
        return digest([repr(network), measures, self.batch_size, *tensors, *own])[:16]


def require_number(what: str, value: object) -> None:
    """Raise ProblemError where a measure did not return a tensor of one number.

    Example:
        >>> require_number("wave: loss", torch.tensor(0.5))
        >>> require_number("wave: loss", torch.zeros(20, 1))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        equilibrate.study.problem.ProblemError: wave: loss(output, targets) must be one number, ...
    """
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ProblemError(
            f"{what}(output, targets) must be one number, got {got}. Reduce it: .mean()"
        )


@contextmanager
def _explained(what: str, *given: Any) -> Iterator[None]:
    """Turn what torch or the user's code raises into one line, with the shapes it came from."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        shapes = " and ".join(str(tuple(t.shape)) for t in given if isinstance(t, Tensor))
        reason = " ".join(str(error).split())
        raise ProblemError(
            f"{what} cannot be computed from {shapes or 'this'}, one batch. The reason: {reason}"
        ) from error


def _moved(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
