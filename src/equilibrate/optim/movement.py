"""One group on its way through an update rule: its tensors side by side, and its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import Tensor

from equilibrate.distributed import all_plain, cut_like, local
from equilibrate.rules import foreach, fused, on_device, reference

_SWITCHES = ("nesterov", "maximize", "update_limit")


@dataclass
class Movement:
    """What a rule takes of one group, on this rank.

    Args:
        group: the group, for its switches.
        kind: which diagonal it is; a rule on the device reads it as it is stored.
        parameters: those that move, perhaps cut into shards.
        gradients: theirs.
        states: theirs.
        buffers: of momentum, if there is any.
        numbers: learning rate, damping and the like, as the rule wants them.
        settled: whether they are on the device.
        brake: what multiplies the update where D has fallen (`mean_floor`); None stands for one.
    """

    group: Mapping[str, Any]
    kind: ModuleType
    parameters: list[Tensor]
    gradients: list[Tensor]
    states: list[dict[str, Any]]
    buffers: list[Tensor] | None
    numbers: dict[str, Any]
    settled: bool = False
    brake: float | Tensor | None = None

    def __post_init__(self) -> None:
        """Take this rank's part of every tensor."""
        self._own = self.parameters
        self._stored: list[Tensor] = [state["diagonal"] for state in self.states]
        if not self.settled and not all_plain(self.parameters):  # no shards have settled
            pairs = zip(self.gradients, self.parameters, strict=True)
            self.gradients = [local(cut_like(g, p)) for g, p in pairs]
            self._own, self._stored = list(map(local, self._own)), list(map(local, self._stored))
            self.buffers = None if self.buffers is None else list(map(local, self.buffers))
        self._known: dict[str, Any] = {}
        if self.settled and self.group["fused"]:  # found out once for `squares` and `move`
            columns = self.gradients, self._stored, self._own, self.buffers
            self._known = {"places": fused.places_at_once(*columns) or False}

    @property
    def elements(self) -> int:
        """The number of all that moves, over all ranks."""
        places = self._known.get("places")
        return sum(places.sizes if places else map(Tensor.numel, self.parameters))

    @property
    def _rule(self) -> ModuleType:
        if self.settled:
            return fused if self.group["fused"] else on_device
        return reference if self.group["foreach"] is False else foreach

    def _diagonals(self) -> list[Tensor]:
        """Return D as the rule wants it: the magnitude is not kept, it may be a copy."""
        return self._stored if self.settled else list(map(self.kind.magnitude, self._stored))

    def move(self, scale: float | Tensor | None) -> None:
        """Move the parameters by an update multiplied by `scale`; None stands for one."""
        switches = {name: self.group[name] for name in _SWITCHES}
        numbers = self.numbers
        if self.brake is not None:
            if self.buffers is None and not self.group["weight_decay"]:  # saves a pass
                numbers = numbers | {"lr": numbers["lr"] * self.brake}
            else:
                scale = self.brake if scale is None else scale * self.brake
        columns = self._own, self.gradients, self._diagonals(), self.buffers
        self._rule.step(*columns, **numbers, **switches, **self._known, scale=scale)

    def squares(self) -> Tensor:
        """Return the sum of u^2 over this rank's part of every tensor, as the brake leaves it."""
        numbers = {name: self.numbers[name] for name in ("damping", "fill")}
        limit = self.group["update_limit"]
        found: Tensor = self._rule.squares(
            self.gradients, self._diagonals(), **numbers, update_limit=limit, **self._known
        )
        return found if self.brake is None else found * self.brake**2
