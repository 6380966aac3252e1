"""The numbers of many parameters side by side on the device: a tensor a name, a view a parameter.

A probe renews six numbers of every parameter. One by one they take the host longer than the product
itself once a network has a hundred tensors; side by side each name is one small operation.
"""

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, Protocol

import torch
from torch import Tensor

from equilibrate.kernels.capture import capturing, numbers
from equilibrate.kernels.fixed import Memory, same
from equilibrate.optim.state import State

OF_PARAMETER = {
    "step": torch.float32,
    "probes": torch.int64,
    "weight": torch.float64,
    "probed_at": torch.float32,
    "scale": torch.float64,
    "unseen": torch.int64,
}

FIRST_IN_CAPTURE = (
    "A parameter is measured for the first time, or was just loaded, inside a captured graph. Make "
    "a few ordinary iterations, a probing one among them, before capturing."
)


class Held(Protocol):
    """The numbers of some parameters, by name, each name one tensor."""

    parameters: list[Tensor]
    states: list[State]
    sizes: Tensor
    memory: Memory  # of a rule that moves them

    def __getitem__(self, name: str) -> Tensor:
        """Return one number of every parameter; do not change it."""
        ...

    def write(self, **columns: Tensor) -> None:
        """Put numbers back into the states they belong to."""
        ...

    def count_step(self) -> None:
        """Add one to every step."""
        ...


class Columns:
    """All measured parameters of a group; every state holds its own numbers as views."""

    def __init__(self, parameters: Sequence[Tensor], states: Mapping[Tensor, State]) -> None:
        """Move the numbers of these parameters to their device, whatever they were before."""
        device = parameters[0].device
        if capturing(device):
            raise RuntimeError(FIRST_IN_CAPTURE)
        self.parameters = list(parameters)
        self.states = [states[p] for p in parameters]
        self.sizes = torch.tensor([p.numel() for p in parameters]).to(device)
        self.memory = Memory()
        self._numbers = {
            name: _on_device([state[name] for state in self.states], dtype, device)
            for name, dtype in OF_PARAMETER.items()
        }
        for name, column in self._numbers.items():
            for state, own in zip(self.states, column.unbind(), strict=True):
                state[name] = own
        self._steps = [state["step"] for state in self.states]

    def are_held(self) -> bool:
        """Tell whether the states still hold these numbers, and not copies."""
        return all(map(is_, [state["step"] for state in self.states], self._steps))

    def are(self, parameters: Sequence[Tensor]) -> bool:
        """Tell whether these are the parameters, all of them and in this order."""
        return same(parameters, self.parameters)

    def __getitem__(self, name: str) -> Tensor:
        """Return one number of every parameter; do not change it."""
        return self._numbers[name]

    def write(self, **columns: Tensor) -> None:
        """Put numbers back into the states they belong to."""
        for name, values in columns.items():
            self._numbers[name].copy_(values)

    def count_step(self) -> None:
        """Add one to every step."""
        self._numbers["step"].add_(1)


class Picked:
    """Some parameters of a group: the same numbers, one by one."""

    def __init__(self, parameters: Sequence[Tensor], states: Mapping[Tensor, State]) -> None:
        """Take parameters whose numbers are on the device."""
        self.parameters = list(parameters)
        self.states = [states[p] for p in parameters]
        self.sizes = numbers([p.numel() for p in parameters], parameters[0].device).long()
        self.memory = Memory()

    def __getitem__(self, name: str) -> Tensor:
        """Return a copy of one number of every parameter."""
        return torch.stack([state[name] for state in self.states])

    def write(self, **columns: Tensor) -> None:
        """Put numbers back into the states they belong to."""
        for name, values in columns.items():
            kept = [state[name] for state in self.states]
            torch._foreach_copy_(kept, list(values.to(kept[0].dtype).unbind()))

    def count_step(self) -> None:
        """Add one to every step."""
        torch._foreach_add_([state["step"] for state in self.states], 1)


def _on_device(values: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    plain = [value.item() if isinstance(value, Tensor) else value for value in values]
    return torch.tensor(plain, dtype=dtype).to(device)
