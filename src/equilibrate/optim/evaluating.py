"""Running a user's closure: once, or on probing steps also at displaced points."""

import torch
from torch import Tensor

from equilibrate.curvature.graph import Nodes, kinks, leaves, nodes
from equilibrate.optim.arguments import require_closure
from equilibrate.optim.closure import ClosureHessian
from equilibrate.optim.closure_differences import Closure
from equilibrate.optim.measuring import Measuring
from equilibrate.optim.restoring import (
    RandomState,
    copied_gradients,
    gradients_put_back,
    places_in_buffers,
    put_back,
    random_state,
    undone_on_error,
)
from equilibrate.optim.state import any_gradient

_SCALED = (
    "GradScaler unscales gradients before step, so it cannot run a closure inside it. Call "
    "optimizer.probe(loss) on the unscaled loss and scaler.step(optimizer) without a closure; or "
    "train in bfloat16, which needs no scaler."
)


class Evaluating(Measuring):
    """An optimizer that measures through torch's standard closure."""

    def _evaluate(self, closure: Closure) -> float:
        """Run the closure; when a probe is due and none arrives inside, measure by differences."""
        require_closure(closure)
        if getattr(self, "found_inf", None) is not None:
            raise RuntimeError(_SCALED)
        with torch.enable_grad():
            # What is measured already may be given up by the closure's zero_grad, and is due then.
            if not (self.probe_due or self._pending or self._warmed):
                return closure()
            parameters = self._trainable()
            start = random_state(parameters)
            earlier, places = copied_gradients(parameters), places_in_buffers(parameters)
            loss = closure()
            if self.probe_due:
                self._agree("step(closure)")
            fresh = [p for p in self._unmeasured() if self._depends_on(p)]
            if not self._pending and (fresh or any(map(self._scheduled, self.param_groups))):
                graph: Nodes = nodes(loss) if isinstance(loss, Tensor) else ()  # a number has none
                # What else got a gradient would get it at every point: another optimizer's, inputs.
                others = gradients_put_back(leaves(graph).difference(self._all()))
                with undone_on_error(parameters, earlier, places, start), others:
                    found = kinks(graph)
                    self._measure_by_differences(closure, fresh, start, earlier, found)
                self._watch(loss)
        return loss

    def _depends_on(self, parameter: Tensor) -> bool:
        """Tell whether what was backpropagated depends on a parameter; zeros may be left over."""
        if parameter.grad is None:
            return False
        return not self.state.get(parameter, {}).get("absent") or any_gradient(parameter)

    def _measure_by_differences(
        self,
        closure: Closure,
        fresh: list[Tensor],
        start: RandomState,
        earlier: list[Tensor | None],
        kinks: list[str],
    ) -> None:
        """Measure around the present point, and leave no trace but the measurement."""
        parameters = self._trainable()
        with self._taking_products(), put_back(parameters) as point:
            hessian = ClosureHessian(closure, parameters, point, start=start, earlier=earlier)
            group, hessian.kinks = self.param_groups[0], kinks
            hessian.relative, hessian.length = group["difference_step"], group["difference_length"]
            self._measure(hessian, fresh)
        for group in self.param_groups:
            group.update(difference_step=hessian.relative, difference_length=hessian.length)
