"""The optimizer with its numbers on the device, from the first step on (`device_numbers`).

The first measurement of a parameter is made with plain numbers; then they settle on the device.
From there on a step, probing or not, waits for nothing, and may be captured in a CUDA graph.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor

from equilibrate.diagonals import fused as fused_fold
from equilibrate.distributed import is_sharded
from equilibrate.kernels import capture
from equilibrate.kernels.capture import capturing, number
from equilibrate.kernels.lists import same
from equilibrate.optim import at_once, device_numbers
from equilibrate.optim.agreeing import Agreeing
from equilibrate.optim.columns import OF_PARAMETER, Columns, Held, Picked
from equilibrate.optim.device_numbers import OF_GROUP, Damped, to_device, to_host
from equilibrate.optim.state import measured
from equilibrate.optim.warn import warn_user

_DROPPED = (
    "{} curvature products were not finite and were dropped; the diagonal kept what it was (see "
    "param_groups[0]['dropped_probes']). Lower the learning rate if the loss is infinite or not a "
    "number; if it is finite, the second derivative overflows: look for a division by zero, too."
)
_NOT_CAPTURABLE = (
    "This step is being captured in a CUDA graph, and the optimizer was not made for that. Build "
    "it with capturable=True, and make a few ordinary iterations before the capture."
)
_SCALED = (
    "GradScaler decides on the host whether to step, so its step cannot be captured in a CUDA "
    "graph. Train in bfloat16, which needs no scaler."
)
_ONE_DEVICE = (
    "fused=True and capturable=True keep their numbers on the parameters' device, and {}. Leave "
    "both out; foreach, the default, takes such parameters."
)


class Settling(Agreeing):
    """An optimizer whose numbers may live on the device."""

    _kind: ClassVar[ModuleType]

    def state_dict(self) -> dict[str, Any]:
        """Return torch's state dict; tells of products that were dropped since the last call.

        Its numbers are plain wherever they live: torch.distributed.checkpoint compares their kinds
        with those of a new optimizer, where nothing is on the device yet.
        """
        self._report_dropped()
        kept: dict[str, Any] = super().state_dict()
        if "state" in kept:  # a hook of the user's may have renamed it
            kept["state"] = {key: _plain(own) for key, own in kept["state"].items()}
        for group in kept.get("param_groups", []):
            to_host(group, OF_GROUP)
        return kept

    def _measured(self, parameter: Tensor) -> bool:
        """Tell whether a parameter was ever measured."""
        return measured(self.state.get(parameter, {}))

    def _refuse_capture(self) -> None:
        """Raise in a capture that was not announced: a graph would repeat what the host decided."""
        first = next(group["params"][0] for group in self.param_groups if group["params"])
        if not capturing(first.device):
            return
        if not any(group["capturable"] for group in self.param_groups):
            raise RuntimeError(_NOT_CAPTURABLE)
        if getattr(self, "found_inf", None) is not None:
            raise RuntimeError(_SCALED)

    def _on_device(self) -> bool:
        return any(group["capturable"] or group["fused"] for group in self.param_groups)

    def _settle(self) -> None:
        """Turn the numbers of all that was measured into tensors, where the groups ask for it."""
        if (self._settled and self._untouched()) or not self._on_device():
            return
        parameters = self._all()
        if any(map(is_sharded, parameters)):
            raise RuntimeError(_ONE_DEVICE.format("these parameters are sharded"))
        if len({p.device for p in parameters}) > 1:
            raise RuntimeError(_ONE_DEVICE.format("these parameters lie on several devices"))
        known = {i: self._measured_of(group) for i, group in enumerate(self.param_groups)}
        self._columns = {i: Columns(own, self.state) for i, own in known.items() if own}
        for group in self.param_groups:
            to_device(group, OF_GROUP, parameters[0].device)
        self._damped, self._settled = {}, True
        self._members = [list(group["params"]) for group in self.param_groups]

    def _untouched(self, names: Iterable[str] = ("step",)) -> bool:
        """Tell whether groups and states are those that settled: trainers move states around.

        Who moves one puts copies into a state, or a new dict in its place. `names` are the numbers
        that are looked at: a step counts steps alone, a fold renews all.
        """
        if len(self.param_groups) != len(self._members):
            return False
        for group, members in zip(self.param_groups, self._members, strict=True):
            if not same(group["params"], members):
                return False
        return all(columns.are_held(self.state, names) for columns in self._columns.values())

    def _measured_of(self, group: dict[str, Any]) -> list[Tensor]:
        return [p for p in group["params"] if self._measured(p)]

    def _held(self, place: int, parameters: Sequence[Tensor]) -> Held:
        """Return the numbers of some measured parameters of a group, at once if they are all."""
        columns = self._columns[place]
        return columns if columns.are(parameters) else Picked(parameters, self.state)

    def _unsettle(self) -> None:
        """Turn them into plain numbers again: something is measured for the first time."""
        for parameter in self._all():
            if parameter in self.state:
                to_host(self.state[parameter], OF_PARAMETER)
        for group in self.param_groups:
            to_host(group, OF_GROUP)
        self._settled, self._columns = False, {}

    def _fold_on_device(self, contributions: Mapping[Tensor, Tensor]) -> None:
        """Fold one vector's contributions where all are finite; count them as dropped elsewhere."""
        if self._usual(contributions):
            group, damped = self.param_groups[0], self._damped[0]
            at_once.fold(self._kind, self._columns[0], list(contributions.values()), group, damped)
            return
        fine = device_numbers.all_fine(list(contributions.values()))
        for place, group in enumerate(self.param_groups):
            own = {p: contributions[p] for p in group["params"] if p in contributions}
            at_once_here = capture.runs_kernels(fine.device) or capture.is_host(fine.device)
            kernel = fused_fold.fold if group["fused"] and at_once_here else None
            if own:
                held, products = self._held(place, list(own)), list(own.values())
                device_numbers.fold(self._kind, held, products, group["decay"], fine, kernel)
            group["probe_index"].add_(1)
            group["dropped_probes"].add_(~fine)
        self._renew_on_device()

    def _usual(self, contributions: Mapping[Tensor, Tensor]) -> bool:
        """Tell whether kernels may renew the numbers: one group, all of it moving and measured."""
        group = self.param_groups[0]
        if len(self.param_groups) > 1 or 0 not in self._damped or not group["fused"]:
            return False
        columns = self._columns[0]
        asked = (group["damping"], group["damping_kind"])
        return (
            capture.runs_kernels(columns.parameters[0].device)
            and columns.are(list(contributions))
            and self._damped[0].is_for(columns, asked)
            and all(map(Tensor.numel, columns.parameters))
            and len({c.dtype for c in contributions.values()}) == 1
        )

    def _renew_on_device(self) -> None:
        """Renew what depends on all diagonals: their mean, and with it the damping."""
        mean = device_numbers.mean_scale(list(self._columns.values()))
        for group in self.param_groups:
            group["mean_scale"].copy_(mean)
            initial = group["initial_scale"]
            initial.copy_(torch.where(initial == 0, mean, initial))
        for i, damped in self._damped.items():
            damped.renew(self.param_groups[i])

    def _damping_on_device(self, place: int, held: Held) -> Damped:
        """Return damping and fill of a group's tensors; made anew where the group has changed."""
        group = self.param_groups[place]
        asked = (group["damping"], group["damping_kind"])
        if place not in self._damped or not self._damped[place].is_for(held, asked):
            self._damped[place] = Damped(held, asked)
            self._damped[place].renew(group)
        return self._damped[place]

    def _numbers(self, place: int, held: Held) -> dict[str, Any]:
        """Return what an update rule takes besides the big tensors, all on the device."""
        group, device = self.param_groups[place], held.parameters[0].device
        damped, lr = self._damping_on_device(place, held), group["lr"]
        there = isinstance(lr, Tensor) and lr.device == device
        momentum, shrinks = group["momentum"], group["weight_decay"]
        return {
            "lr": lr.reshape(()) if there else number(float(lr), device),
            "damping": damped.damping,
            "fill": damped.fill,
            "momentum": number(momentum, device) if momentum else None,
            "weight_decay": number(shrinks, device) if shrinks else None,
        }

    def _report_dropped(self) -> None:
        """Tell, where waiting does no harm, of products dropped on the device."""
        if not self._settled:
            return
        dropped = int(self.param_groups[0]["dropped_probes"])
        if dropped > self._told:
            warn_user(_DROPPED.format(dropped - self._told))
        self._told = dropped


def _plain(own: Any) -> Any:
    """Return a copy of a parameter's state with plain numbers; what else is kept, as it is."""
    if not isinstance(own, dict) or not own.keys() >= OF_PARAMETER.keys():
        return own
    copied = dict(own)
    to_host(copied, OF_PARAMETER)
    return copied
