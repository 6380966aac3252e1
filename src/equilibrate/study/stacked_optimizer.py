"""One optimizer for a stack of trials: every trial its own settings, all moved together."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from equilibrate.study.fused import fused
from equilibrate.study.memory_order import in_order, memory_order, view_in_order
from equilibrate.study.stacked_rules import RULES, Numbers, complete, per_trial


def wide(per_trial: Tensor) -> Tensor:
    """Give one number a trial the shape to broadcast over (trials, elements)."""
    return per_trial.view(-1, 1)


class StackedOptimizer:
    """The stacked form of one of torch's first-order optimizers.

    Args:
        optimizer: the class; one of `RULES`.
        settings: one mapping a trial, of equal `structure`.
        parameters: tensors (trials, ...) that are moved in place.
    """

    def __init__(
        self,
        optimizer: type[Optimizer],
        settings: Sequence[Mapping[str, Any]],
        parameters: Sequence[Tensor],
    ) -> None:
        self.rule, self.parameters = RULES[optimizer], list(parameters)
        self.settings = [complete(optimizer, each) for each in settings]
        self.device = self.parameters[0].device
        self.switches = {name: self.settings[0][name] for name in self.rule.switches}
        self.numbers: Numbers = per_trial(self.rule, self.settings, self.device)
        slots = [*self.rule.slots, *self._buffer_slot()]
        self.state = {slot: [torch.zeros_like(p) for p in self.parameters] for slot in slots}
        self.orders = [memory_order(p) for p in self.parameters]
        self.dtype = self.parameters[0].dtype
        self.step = torch.zeros_like(self.numbers["lr"])
        self.follows = False  # whether numbers change on the device, without `set`
        self._move = fused(_moving(self.rule.update), self.device) if self.rule.update else None
        self._count = fused(_counting(self.rule.derive), self.device)
        derived = self.rule.derive(self.numbers, self.step).items()
        self._derived = {name: wide(value.to(self.dtype)).clone() for name, value in derived}

    def _buffer_slot(self) -> list[str]:
        return ["momentum_buffer"] if any(s.get("momentum") for s in self.settings) else []

    def set(self, name: str, values: Sequence[float]) -> None:
        """Change a number of every trial, as a schedule does."""
        new = torch.tensor(values, dtype=torch.float64)
        if self.device.type == "cuda":
            new = new.pin_memory()
        self.numbers[name].copy_(new, non_blocking=True)
        self.renew()

    def renew(self) -> None:
        """Derive anew what depends on the numbers, in place: captured graphs read these tensors."""
        _renew(self._derived, self.rule.derive(self.numbers, self.step))

    @torch.no_grad()
    def move(self, gradients: Sequence[Tensor | None]) -> None:
        """Move every trial along its gradient; None is a gradient of zeros."""
        assert self._move is not None
        self._count_a_step()
        self._move(
            self._views(self.parameters),
            self._views(self._filled(gradients), may_copy=True),
            {slot: self._views(tensors) for slot, tensors in self.state.items()},
            self._derived,
            self.switches,
        )

    def _count_a_step(self) -> None:
        if self.rule.counts or self.follows:
            self._count(self.numbers, self.step, self._derived)
        else:
            self.step.add_(1)

    def _filled(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        pairs = zip(self.parameters, gradients, strict=True)
        return [torch.zeros_like(p) if g is None else g for p, g in pairs]

    def _views(self, tensors: Sequence[Tensor], *, may_copy: bool = False) -> list[Tensor]:
        """See tensors in the memory order of the parameters, (trials, elements)."""
        view = in_order if may_copy else view_in_order
        return [view(tensor, order) for tensor, order in zip(tensors, self.orders, strict=True)]

    def probes_at(self, update: int) -> bool:
        """Tell whether a probe is due at an update: never for a first-order method."""
        return False

    def tensors(self) -> dict[str, Any]:
        """Return everything kept, by name; the first dimension of all of it counts trials."""
        return {"state": self.state, "numbers": self.numbers, "step": self.step}


@cache
def _moving(update: Callable[..., None]) -> Callable[..., None]:
    """Return a function that moves all parameters by a rule for one."""

    def move(
        parameters: list[Tensor],
        gradients: list[Tensor],
        state: dict[str, list[Tensor]],
        numbers: Numbers,
        switches: dict[str, Any],
    ) -> None:
        for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            kept = {slot: tensors[i] for slot, tensors in state.items()}
            update(parameter, gradient, **kept, **numbers, **switches)

    return move


@cache
def _counting(derive: Callable[[Numbers, Tensor], Numbers]) -> Callable[..., None]:
    """Return a function that counts a step and derives anew, in place, what depends on it."""

    def count(numbers: Numbers, step: Tensor, derived: Numbers) -> None:
        step.add_(1)
        _renew(derived, derive(numbers, step))

    return count


def _renew(derived: Numbers, values: Numbers) -> None:
    for name, value in values.items():
        derived[name].copy_(wide(value.to(derived[name].dtype)))
