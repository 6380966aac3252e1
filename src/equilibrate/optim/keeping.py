"""What an optimizer keeps and what it forgets: groups, saving, loading, copying.

Everything that must survive lives in `param_groups` and `state`, so torch's own `state_dict` holds
it all. A pending product belongs to an iteration, like a gradient, and is not kept.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from equilibrate.optim.arguments import (
    check_group,
    check_loaded,
    check_parameters,
    check_scaling,
    plain_numbers,
)
from equilibrate.optim.columns import Columns
from equilibrate.optim.device_numbers import Damped
from equilibrate.optim.pending import Pending
from equilibrate.optim.rising_loss import RisingLoss
from equilibrate.optim.state import allocate, any_gradient, check_shapes, restore
from equilibrate.optim.warn import warn_user

# What an optimizer did before there were these.
_BEFORE = {
    "update_limit": None,
    "growth_limit": None,
    "update_mean": 0.0,
    "update_count": 0,
    "mean_floor": False,
    "difference_length": None,
    "first_mean_scale": 0.0,
    "initial_scale": 0.0,  # the next mean then
}


class Keeping(Optimizer):
    """An optimizer whose state keeps its own precision, and whose groups are checked."""

    _process_group: Any
    _pending: Pending
    _measuring: bool
    _warned: set[str]
    _warmed: list[Tensor]  # parameters warmed up since the last step
    _joining: list[Tensor]  # parameters measured for the first time since the last step
    _first_mean: float  # the floor under the mean of D before they joined
    _first_initial: float  # the mean that initial damping was a share of then
    _settled: bool  # the numbers are on the device
    _members: list[list[Tensor]]  # by group: the parameters when the numbers settled
    _columns: dict[int, Columns]  # by group: the numbers of what was measured, where they are
    _damped: dict[int, Damped]  # by group: damping and fill on the device
    _damping_of: dict[int, Any]  # by group: damping and fill since the last fold, as numbers
    _told: int  # dropped products that were warned about
    _noted: list[tuple[int, int]]  # the gradients at the last probe

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load as torch does, but keep the diagonal in the precision it was saved in."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"load_state_dict takes what state_dict returned, got {type(state_dict).__name__}. "
                "Of a file: load_state_dict(torch.load(path, weights_only=True))."
            )
        loaded: dict[str, Any] = {}

        def note(_: Any, given: dict[str, Any]) -> None:
            check_loaded(given, self.defaults)
            check_shapes(given, self._all())
            loaded.update(given)

        # Registered last, so that it sees what other hooks have made of the state.
        # The restoring runs first of those after loading, so that they have the last word.
        handles = [
            self.register_load_state_dict_pre_hook(note),
            self.register_load_state_dict_post_hook(
                lambda _: restore(loaded, self._all(), self.state), prepend=True
            ),
        ]
        try:
            super().load_state_dict(state_dict)
        finally:
            for handle in handles:
                handle.remove()

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled and copied; of the ranks only that they are independent."""
        kept: dict[str, Any] = super().__getstate__()
        return kept | {"_process_group": False if self._process_group is False else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Rebuild what is not saved, after unpickling, copying or loading."""
        super().__setstate__(state)
        self.__dict__.setdefault("_process_group", None)
        self.defaults = _BEFORE | self.defaults  # of a whole optimizer pickled by an older version
        for group in self.param_groups:  # saved before a hyper-parameter was introduced
            if "first_mean_scale" not in group and "mean_scale" in group:
                group["first_mean_scale"] = deepcopy(group["mean_scale"])  # from here on
            for name in self.defaults.keys() - {"differentiable"}:  # torch's, for defaults alone
                group.setdefault(name, self.defaults[name])
        for kept in [self.state[p] for p in self._all() if p in self.state]:
            # Never shared with what was loaded; a plain number in some state dicts.
            kept["step"] = torch.as_tensor(kept["step"], dtype=torch.float32).clone()
        self._forget_volatile()

    def _only_allocates(self, moving: bool) -> bool:
        """Allocate state for torch.distributed.checkpoint, which asks by a step that moves nothing.

        It calls `step` with learning rate zero and gradients of zero on an optimizer without state.
        What is frozen has no gradient there, and no state in any file.
        """
        if self.state or self._pending or not moving:
            return False
        if any(float(group["lr"]) for group in self.param_groups):
            return False
        if any(map(any_gradient, self._all())):
            return False
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.state[parameter] = allocate(parameter, group["momentum"])
        return True

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group after checking it; its parameters are probed at the next step."""
        if isinstance(param_group, dict):  # else torch says what is wrong
            check_group(self.defaults | param_group)
            check_scaling([*self.param_groups, self.defaults | param_group])
            param_group.update(plain_numbers(param_group))
        super().add_param_group(param_group)
        try:
            check_parameters(self.param_groups[-1]["params"])
        except ValueError:
            self.param_groups.pop()
            raise
        for name in ("probe_index", "mean_scale", "first_mean_scale", "initial_scale"):
            self.param_groups[-1][name] = deepcopy(self.param_groups[0][name])
        self._settled, self._damping_of = False, {}
        for group in self.param_groups:
            # A coarser dtype may have joined.
            group["difference_step"] = group["difference_length"] = None

    def _forget_volatile(self) -> None:
        """Start without pending product: like a gradient it belongs to an iteration alone."""
        self._pending = Pending()
        self._measuring = False
        self._settled, self._columns, self._damped, self._told = False, {}, {}, 0
        self._members = []
        self._damping_of = {}
        self._warmed, self._joining, self._noted = [], [], []
        self._first_mean = self._first_initial = 0.0
        self._warned: set[str] = set()
        self._losses = RisingLoss()

    def _require_itself(self) -> None:
        """Raise where a wrapper borrows the methods of this class but keeps its own attributes."""
        if "_pending" not in self.__dict__:
            raise RuntimeError(
                f"{type(self).__name__} wraps the optimizer, and what it measures would be lost. "
                "Call probe on the optimizer itself: in Lightning, "
                "self.optimizers(use_pl_optimizer=False).probe(loss)."
            )

    def _all(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warn_user(text)

    def _watch(self, loss: Any) -> None:
        """Look at a loss that was probed, where the host waits for the device anyway."""
        one = isinstance(loss, float) or (isinstance(loss, Tensor) and loss.numel() == 1)
        if one and not (self._settled or self.param_groups[0]["maximize"]):
            self._losses.add(loss)

    def _tell_of_explosion(self, text: str) -> None:
        if "explosion" not in self._warned:
            self._warned.add("explosion")
            warn_user(text)
