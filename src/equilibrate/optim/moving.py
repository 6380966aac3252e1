"""The step around the arithmetic: closures, scalers, what may not move yet."""

from typing import Any

import torch
from torch import Tensor

from equilibrate.curvature.checks import refuse_model
from equilibrate.distributed import Word
from equilibrate.optim import mean_floor
from equilibrate.optim.arguments import check_layouts, plain_numbers
from equilibrate.optim.closure_differences import Closure
from equilibrate.optim.columns import Columns
from equilibrate.optim.damping import damping_and_fill
from equilibrate.optim.due import Group
from equilibrate.optim.growth import is_limited
from equilibrate.optim.limiting import Limiting
from equilibrate.optim.movement import Movement
from equilibrate.optim.rising_loss import own_size
from equilibrate.optim.state import State, any_gradient, zeros_like

_NO_CURVATURE = (
    "No curvature has been measured yet, so there is nothing to divide the gradient by. Call "
    "optimizer.probe(loss) before loss.backward() in every iteration, or pass a closure: "
    "optimizer.step(closure)."
)
_NO_FINITE_CURVATURE = (
    "No finite curvature has been measured yet: every product so far was infinite or not a "
    "number. Check that the loss is finite and twice differentiable at the first batch. With "
    "GradScaler probe the loss itself, not scaler.scale(loss): in float16 the scaled one overflows."
)

Given = tuple[list[Tensor], list[Tensor]]


class CurvatureOptimizer(Limiting):
    """SGD whose gradient is divided by a diagonal of the Hessian plus damping."""

    # GradScaler then hands over grad_scale and found_inf instead of skipping the step on its own,
    # so that a skipped step drops the pending product as well (`_skipped_by_scaler`).
    _step_supports_amp_scaling = True

    def __init__(self, params: Any, defaults: dict[str, Any], process_group: Any = None) -> None:
        """Take the hyper-parameters; all that must survive lives in `param_groups` and `state`."""
        refuse_model(params)
        self._process_group = process_group
        self._forget_volatile()
        bookkeeping = {
            "probe_index": 0,  # vectors drawn so far, one count for the whole optimizer
            "steps_since_probe": 0,
            "dropped_probes": 0,  # products that were not finite
            "difference_step": None,  # chosen at the first probe by closure
            "difference_length": None,  # of the gradient at the last displaced point
            "mean_scale": 0.0,  # mean diagonal over all that was seen
            "first_mean_scale": 0.0,  # the same when its parameters first moved
            "initial_scale": 0.0,  # the mean that initial damping is a share of
            "update_mean": 0.0,  # running average of the size of an update, with momentum
            "update_count": 0,  # over so many steps
            "kind": self._kind.__name__.rpartition(".")[2],
        }
        super().__init__(params, plain_numbers(defaults) | bookkeeping)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> float | None:  # type: ignore[override]
        """Fold the pending product into the diagonal, then move the parameters (Algorithm 1).

        With a closure (zero_grad, backward, return loss) the curvature is measured by differences
        of gradients when due, unless the closure calls `probe` itself. A probing step runs the
        closure twice more, the very first one twice for each warm-up vector and five times to
        choose the width, 46 with ESGD's 20. BatchNorm would average them all in: put the forward
        pass inside `equilibrate.frozen_statistics`. Return the loss itself, by which gradients of
        other optimizers' parameters are told and put back.
        """
        try:
            return self._step(closure)
        except BaseException:
            self._leave_scaler()
            raise

    def _step(self, closure: Closure | None) -> float | None:
        self._refuse_capture()
        loss = None if closure is None else self._evaluate(closure)
        self._refuse_scaled_loss()
        given = [_given(group["params"]) for group in self.param_groups]
        if self._only_allocates(moving := any(gradients for _, gradients in given)):
            return loss
        self._miss_gradients(moving, closure is not None)
        words = self._agree_on_step()
        if self._skipped_by_scaler(words):
            return loss
        tried = bool(self._pending)
        self._settle()
        self._complete_warm_up()  # before what is of all losses already
        self._fold_pending()
        if not self._settled:
            self._settle()
        self._require_curvature(moving, tried)
        self._losses.end_step(lambda: own_size(self._all(), self.state), self._tell_of_explosion)
        self._unscale([gradient for _, gradients in given for gradient in gradients])
        movements = [m for i, own in enumerate(given) if (m := self._movement(i, *own))]
        scale = self._growth_factor([m for m in movements if is_limited(m.group)])
        for movement in movements:
            movement.move(scale if is_limited(movement.group) else None)
        for group in self.param_groups:
            group["steps_since_probe"] += 1
        self._joining = []
        return loss

    def _agree_on_step(self) -> list[Word]:
        """On a step that measures, compare this rank with the others, if there are any."""
        if self._ranks() is None or not (self.probe_due or self._warmed):
            return []
        return self._agree("step", skipped=self._overflowed())

    def _miss_gradients(self, moving: bool, by_closure: bool) -> None:
        """Warn once of a loss that was probed, or returned by a closure, and not backpropagated."""
        missed = not moving and (by_closure or self._pending or self._warmed)
        if missed and any(p.requires_grad for p in self._all()):
            self._warn_once(
                "No parameter has a gradient, so nothing moves. Call loss.backward() before "
                "optimizer.step(), inside the closure where there is one."
            )

    def _require_curvature(self, moving: bool, tried: bool) -> None:
        """Raise before the first probe; warn once of a probe forgotten later."""
        known = self._settled and self.state and self._columns  # of what was measured, just checked
        if moving and not (known or any(map(self._measured, self._all()))):
            dropped = self.param_groups[0]["dropped_probes"]
            raise RuntimeError(_NO_FINITE_CURVATURE if dropped else _NO_CURVATURE)
        if moving and not tried and any(map(self._scheduled, self.param_groups)):
            self._warn_once(
                "A probe is due but none came with this step; the last diagonal is used until "
                "one does. Call optimizer.probe(loss) in every iteration: it measures only when "
                "due."
            )

    def _movable(self, place: int, with_gradient: list[Tensor]) -> list[Tensor]:
        """Return the parameters with a gradient and a diagonal; the others wait for their probe."""
        group, columns = self.param_groups[place], self._columns.get(place)
        whole = len(with_gradient) == len(group["params"])
        if whole and columns is not None and columns.are(with_gradient):
            return columns.parameters  # known at once: only what was measured has columns
        if self._ranks() is not None:
            self._note_absent(group)
            return [p for p in with_gradient if self._measured(p)]
        if not self._unmeasured(with_gradient):
            return with_gradient
        movable = [p for p in with_gradient if self._measured(p)]
        for parameter in with_gradient:
            if parameter in self.state and not self._measured(parameter):
                self.state[parameter]["absent"] = not self._depends_on(parameter)
        if any(self._depends_on(p) for p in with_gradient if not self._measured(p)):
            self._warn_once(
                "A parameter has a gradient but no probed loss depended on it, so it does not "
                "move. Call optimizer.probe(loss) on every loss before it is backpropagated."
            )
        return movable

    def _note_absent(self, group: Group) -> None:
        """Note by the averaged gradients, equal on all ranks, which parameters wait for a probe."""
        for parameter in group["params"]:
            if parameter.requires_grad and not self._measured(parameter):
                self._allocated(parameter)["absent"] = not any_gradient(parameter)

    def _movement(
        self, place: int, with_gradient: list[Tensor], gradients: list[Tensor]
    ) -> Movement | None:
        """Return what the update rule takes of one group; None where nothing moves."""
        group, parameters = self.param_groups[place], self._movable(place, with_gradient)
        if not parameters:
            return None
        if len(parameters) < len(with_gradient):
            _, gradients = _given(parameters)
        held = self._held(place, parameters) if self._settled else None
        states = [self.state[p] for p in parameters] if held is None else held.states
        buffers = self._buffers(group, parameters, states)
        if held is None:
            torch._foreach_add_([state["step"] for state in states], 1)
            numbers = self._plain_numbers(place, parameters)
        else:
            numbers = self._numbers(place, held)
            if group["fused"] and isinstance(held, Columns):
                numbers["steps"] = held["step"]  # counted by the rule, in the same launch
            else:
                held.count_step()
        own = group, self._kind, parameters, gradients, states, buffers, numbers, self._settled
        return Movement(*own, brake=mean_floor.brake(group, on_device=self._settled))

    def _plain_numbers(self, place: int, parameters: list[Tensor]) -> dict[str, Any]:
        """Return what an update rule takes besides the big tensors, as plain numbers."""
        group = self.param_groups[place]
        asked = (group["damping"], group["damping_kind"], list(map(id, parameters)))
        if place not in self._damping_of or self._damping_of[place][0] != asked:
            self._damping_of[place] = (asked, *self._damping(group, parameters))
        _, damping, fill = self._damping_of[place]
        return {
            "lr": float(group["lr"]),
            "damping": damping,
            "fill": fill,
            "momentum": group["momentum"],
            "weight_decay": group["weight_decay"],
        }

    def _buffers(
        self, group: Group, parameters: list[Tensor], states: list[State]
    ) -> list[Tensor] | None:
        """Return the momentum buffers, new ones where momentum was switched on later."""
        if not group["momentum"]:
            return None
        try:
            return [state["momentum_buffer"] for state in states]
        except KeyError:
            for parameter, state in zip(parameters, states, strict=True):
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = zeros_like(parameter)
        return [state["momentum_buffer"] for state in states]

    def _damping(self, group: Group, parameters: list[Tensor]) -> tuple[list[float], list[float]]:
        """Return damping and fill of each tensor; warn once where there is nothing to divide by."""
        damping, fill = damping_and_fill(group, parameters, self.state)
        if group["damping_kind"] != "absolute" and group["damping"] and not any(damping):
            self._warn_once(
                "No curvature was seen in any parameter, so no step has a scale and nothing moves. "
                'Is the loss linear? damping_kind="absolute" takes plain gradient steps there.'
            )
        return damping, fill


def _given(parameters: list[Tensor]) -> Given:
    """Return those of some parameters that have a gradient, and the gradients; none is sparse."""
    gradients = [gradient for p in parameters if (gradient := p.grad) is not None]
    check_layouts(gradients)
    if len(gradients) < len(parameters):
        parameters = [p for p in parameters if p.grad is not None]
    return parameters, gradients
