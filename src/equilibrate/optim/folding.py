"""From contributions to the diagonal: what is pending, what is folded, what is dropped."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from equilibrate.kernels.lists import same
from equilibrate.optim import mean_floor
from equilibrate.optim.columns import OF_PARAMETER
from equilibrate.optim.damping import initial_scale, mean_scale
from equilibrate.optim.pending import Pending
from equilibrate.optim.settling import Settling
from equilibrate.optim.state import (
    State,
    all_finite,
    all_measured,
    allocate,
    fold,
    zeros_like,
)
from equilibrate.optim.warn import warn_user

_LOST = (
    "A parameter is infinite or not a number: training has diverged. Go back to a checkpoint, and "
    "lower the learning rate."
)
_DROPPED = (
    "A curvature product was not finite and was dropped; the diagonal is unchanged (see "
    "param_groups[0]['dropped_probes']). Lower the learning rate if the loss is infinite or not a "
    "number; if it is finite, the second derivative overflows: look for a division by zero, too."
)


class Folding(Settling):
    """An optimizer that keeps a diagonal of the Hessian; `_kind` says which one."""

    def diagonal(self) -> list[Tensor]:
        """Return the present diagonal, undamped: one copied tensor per parameter, in order.

        It is zero where no curvature was ever seen: everywhere before the first probe, and for
        parameters that no probed loss depends on.
        """
        self._report_dropped()
        return [
            self._kind.magnitude(self.state[p]["diagonal"]).clone()
            if p in self.state
            else zeros_like(p)
            for p in self._all()
        ]

    def unseen_share(self) -> float:
        """Return the share of elements whose curvature was never seen non-zero."""
        parameters = self._all()
        self._report_dropped()
        unseen = sum(
            int(self.state[p]["unseen"]) if p in self.state else p.numel() for p in parameters
        )
        return float(unseen / max(1, sum(p.numel() for p in parameters)))

    def _trainable(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def _unmeasured(self, trainable: list[Tensor] | None = None) -> list[Tensor]:
        """Return the trainable parameters that were never measured."""
        trainable = self._trainable() if trainable is None else trainable
        if same(list(self.state), trainable) and all_measured(self.state.values()):
            return []  # the usual case, told without a look-up for each
        return [p for p in trainable if not self._measured(p)]

    def _fold(self, contributions: Mapping[Tensor, Tensor], asked: Iterable[Tensor] = ()) -> bool:
        """Fold one vector's contributions, or drop them whole where any is not finite."""
        known = self._settled and not self._joining and self._untouched(OF_PARAMETER)
        if known and not self._unmeasured(list(contributions)):
            self._fold_on_device(contributions)
            return True
        self._unsettle()
        for group in self.param_groups:
            group["probe_index"] += 1
        if not all_finite(list(contributions.values())):
            self._drop()
            return False
        self._note_joining(contributions)
        for p in dict.fromkeys([*contributions, *asked]):
            self._allocated(p)["absent"] = not self._measured(p)
        groups = self._groups()
        decays = {p: groups[p]["decay"] for p in contributions}
        fold(self._kind, contributions, self.state, decays)
        self._renew_mean()
        return True

    def _note_joining(self, contributions: Iterable[Tensor]) -> None:
        """Note what is measured for the first time, and where the floor of the others was then."""
        if not self._joining:
            self._first_mean = float(self.param_groups[0]["first_mean_scale"])
            one = self.param_groups[0]  # zero in a state that knows of none yet
            self._first_initial = float(one["initial_scale"]) or float(one["mean_scale"])
        self._joining += [p for p in contributions if not self._measured(p)]

    def _allocated(self, parameter: Tensor) -> State:
        """Return the state of a parameter, made on first use."""
        if parameter not in self.state:
            self.state[parameter] = allocate(parameter, self._groups()[parameter]["momentum"])
        state: State = self.state[parameter]
        return state

    def _groups(self) -> dict[Tensor, dict[str, Any]]:
        """Return the group of every parameter."""
        return {p: group for group in self.param_groups for p in group["params"]}

    def _drop(self) -> None:
        """Count a product that was not finite, and say so."""
        for group in self.param_groups:
            group["dropped_probes"] += 1
        fine = all_finite([p.detach() for p in self._all()])
        warn_user(_DROPPED if fine else f"{_LOST} {_DROPPED}")

    def _fold_pending(self) -> None:
        """Fold what this step's losses have contributed; a dropped product leaves the probe due."""
        pending, self._pending = self._pending, Pending()
        if pending and self._fold(self._mean_pending(pending), pending.asked):
            for group in self.param_groups:
                trainable = [p for p in group["params"] if p.requires_grad]
                if trainable and pending.holds(trainable):
                    group["steps_since_probe"] = 0

    def _renew_mean(self) -> None:
        """Note the mean diagonal over all that was seen, which damping falls back on."""
        if settled := self._settled:
            self._unsettle()
        known = {p: self.state[p] for p in self._all() if p in self.state}
        mean = mean_scale(known)
        for group in self.param_groups:
            group["mean_scale"] = mean
            group["initial_scale"] = group["initial_scale"] or mean
        if self._joining:
            self._renew_first_means(known)
        self._damping_of = {}
        if settled:
            self._settle()

    def _renew_first_means(self, known: Mapping[Tensor, State]) -> None:
        """Count the parameters that join in: the floor moves along, and initial damping."""
        joining = set(self._joining)
        others = {p: state for p, state in known.items() if p not in joining}
        new = {p: state for p, state in known.items() if p in joining}
        initial = initial_scale(self._first_initial, others, new)
        for group in self.param_groups:
            mean, first = group["mean_scale"], self._first_mean
            group["first_mean_scale"] = mean_floor.with_joined(first, mean_scale(others), mean)
            group["initial_scale"] = initial
