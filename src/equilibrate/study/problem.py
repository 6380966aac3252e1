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

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

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
        data: called once, returns (inputs, targets): two tensors whose first dimension counts
            cases.
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

    def network(self, seed: int) -> nn.Module:
        """Return the network of a seed, leaving torch's own generator where it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.model(seed)

    @cached_property
    def cases(self) -> tuple[Tensor, Tensor]:
        """The inputs and targets, checked."""
        inputs, targets = self.data()
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
            output = network(inputs)
            for what, measure in (("loss", self.loss), ("error", self.reported)):
                require_number(f"{self.name}: {what}", measure(output, targets))

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
        """A hash of what is trained: first network, data, loss, error, batch size.

        It is a part of every trial's key, so that records of a problem that has been changed are
        not taken for records of this one.
        """
        network, (inputs, targets) = self.network(0), self.cases
        first = _content(inputs)
        last = first if targets is inputs else _content(targets)  # the data may be large
        tensors = [*map(_content, network.state_dict().values()), first, last]
        measures = [_source(self.loss), _source(self.reported)]
        return digest([repr(network), measures, self.batch_size, *tensors])[:16]


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


def find_problem(
    name: str,
    built_in: Mapping[str, Callable[[Path | None], Problem]],
    folder: Path | None = None,
) -> Problem:
    """Return a built-in problem by its name, or a user's own by `module:name`.

    The module is looked for as Python does, and in the present folder; `name` is a Problem or a
    function without arguments that returns one.

    Args:
        name: of the problem.
        built_in: by name, called with the folder (`problems.BUILT_IN`).
        folder: of the data files of built-in problems; None for the usual places.
    """
    if name in built_in:
        return built_in[name](folder)
    module_name, _, attribute = name.partition(":")
    if not attribute or not all(module_name.split(".")):  # no module, or a relative one
        raise ProblemError(
            f"no problem {name!r}; there are {', '.join(built_in)}, and a problem of your own "
            f"is module:name, such as my_file:my_problem for my_file.py in this folder"
        )
    found = _attribute(_module(module_name.removesuffix(".py")), attribute)
    problem = found() if callable(found) and not isinstance(found, Problem) else found
    if not isinstance(problem, Problem):
        raise ProblemError(
            f"{name} is a {type(problem).__name__}; it must be an equilibrate.study.Problem or a "
            f"function that returns one"
        )
    return problem


def _moved(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)


def _module(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there and misses something of its own
        raise ProblemError(
            f"there is no module {name!r} here or on Python's path; is {name.replace('.', '/')}.py "
            f"in this folder?"
        ) from error


def _attribute(module: Any, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError as error:
        names = [n for n, thing in vars(module).items() if isinstance(thing, Problem)]
        raise ProblemError(
            f"{module.__name__} has no {name!r}; problems in it: {', '.join(names) or 'none'}"
        ) from error


def _source(function: Measure) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # a built-in or a callable object: its name must do
        return getattr(function, "__qualname__", type(function).__qualname__)


def _content(tensor: Tensor) -> str:
    flat = tensor.detach().contiguous().flatten().view(torch.uint8).numpy()
    shape = f"{tensor.dtype}{tuple(tensor.shape)}"
    return shape + hashlib.sha256(flat.tobytes()).hexdigest()
