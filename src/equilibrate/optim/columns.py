"""The numbers of many parameters side by side on the device: a tensor a name, a view a parameter.

A probe renews six numbers of every parameter. One by one they take the host longer than the product
itself once a network has a hundred tensors; side by side each name is one small operation.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import is_
from typing import Any, Protocol

import torch
from torch import Tensor

from equilibrate.kernels.capture import capturing, numbers
from equilibrate.kernels.lists import same
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
    sizes: Tensor

    @property
    def states(self) -> list[State]:
        """Return the states as they are now."""
        ...

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
    """All measured parameters of a group; every state holds its own numbers as views.

    No state is kept here, nor any large tensor: who moves a state away gets its memory.
    """

    def __init__(self, parameters: Sequence[Tensor], states: Mapping[Tensor, State]) -> None:
        """Move the numbers of these parameters to their device, whatever they were before."""
        device = parameters[0].device
        if capturing(device):
            raise RuntimeError(FIRST_IN_CAPTURE)
        self.parameters = list(parameters)
        self.sizes = torch.tensor([p.numel() for p in parameters]).to(device)
        self._states, self._keys = states, list(states)
        place = {id(p): i for i, p in enumerate(self._keys)}
        self._places = [place[id(p)] for p in parameters]
        self._whole = self._places == list(range(len(self._keys)))
        found = self.states
        self._numbers = {
            name: _on_device([state[name] for state in found], dtype, device)
            for name, dtype in OF_PARAMETER.items()
        }
        self._views = {name: list(column.unbind()) for name, column in self._numbers.items()}
        for name, views in self._views.items():
            for state, own in zip(found, views, strict=True):
                state[name] = own

    @property
    def states(self) -> list[State]:
        """Return the states as they are now, found by their places: a look-up each takes longer."""
        known = len(self._states) >= len(self._keys)
        if known and all(map(is_, self._states, self._keys)):
            values = list(islice(self._states.values(), len(self._keys)))
            return values if self._whole else [values[i] for i in self._places]
        return [self._states[p] for p in self.parameters]

    def are_held(self, states: Mapping[Tensor, State], names: Iterable[str]) -> bool:
        """Tell whether the states still hold these numbers, and not copies."""
        if states is not self._states:
            return False
        found = self.states
        return all(same([s.get(name) for s in found], self._views[name]) for name in names)

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
        self.parameters, self._states = list(parameters), states
        self.sizes = numbers([p.numel() for p in parameters], parameters[0].device).long()

    @property
    def states(self) -> list[State]:
        """Return the states as they are now."""
        return [self._states[p] for p in self.parameters]

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
