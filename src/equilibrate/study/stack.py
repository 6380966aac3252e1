"""Many trials of one method at once: every parameter has a leading dimension of trials.

The network runs under `torch.vmap`, the losses are summed, and one backward pass gives every trial
its own gradient. On a GPU an update is a captured graph whose elementwise parts are compiled.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import stack_module_state

from equilibrate.study.batches import Batches, pieces
from equilibrate.study.captured import Captured
from equilibrate.study.memory_order import laid_out, memory_order
from equilibrate.study.methods import Method
from equilibrate.study.passes import passes
from equilibrate.study.precision import computing, dtype_of
from equilibrate.study.problem import Problem
from equilibrate.study.scheduling import Scheduling
from equilibrate.study.stacked_curvature import KINDS, StackedCurvature
from equilibrate.study.stacked_optimizer import StackedOptimizer
from equilibrate.study.trial import Trial

_CASES_AT_ONCE = 20_000  # trials times cases in one piece of an evaluation


class Stack:
    """A trainer of several trials of one method, of equal structure (`stacked_rules`)."""

    def __init__(
        self,
        problem: Problem,
        method: Method,
        trials: Sequence[Trial],
        device: torch.device,
    ) -> None:
        self.problem, self.method, self.trials, self.device = problem, method, list(trials), device
        self.precision = self.trials[0].precision
        dtype = dtype_of(self.precision)
        networks = [problem.network(t.seed).to(device, dtype) for t in self.trials]
        self.passes = passes(problem, self.precision, device)
        self.parameters, _ = stack_module_state(networks)
        self.data = problem.on(device, dtype)
        self.updates = 0
        with computing(self.precision):
            self._lay_out_as_gradients()
        self._rebuild(self.parameters)
        self._rehearse()

    def _rebuild(self, parameters: Mapping[str, Tensor]) -> None:
        """Build all that depends on the number of trials around these parameters."""
        self.parameters = {
            name: laid_out(value, self._orders[name]).requires_grad_()
            for name, value in parameters.items()
        }
        self._stacked, self._rows = len(self.trials), list(range(len(self.trials)))
        kind = StackedCurvature if self.method.optimizer in KINDS else StackedOptimizer
        settings = [trial.settings for trial in self.trials]
        self.optimizer = kind(self.method.optimizer, settings, list(self.parameters.values()))
        seeds = [trial.seed for trial in self.trials]
        self.batches = Batches(self.data, self.trials[0].batch_size, seeds)
        totals = [trial.epochs * self.batches.updates_per_epoch for trial in self.trials]
        self.schedule = Scheduling(self.optimizer.settings, totals)
        self._laid_out = False
        every = self.optimizer.switches.get("probe_every")
        self._plain = Captured(lambda: self._update(None), self.device)
        self._probing = Captured(lambda: self._update(every), self.device)

    def _rehearse(self) -> None:
        """On a GPU, compile and capture now, and leave no trace: training then runs at its pace."""
        if self.device.type != "cuda":
            return
        before = _each(self._tensors(), lambda tensor: tensor.detach().clone())
        with computing(self.precision):
            for function in (self._plain, self._probing)[: 1 + self.optimizer.probes_at(0)]:
                for _ in range(Captured.CALLS):
                    self.batches.begin(0)
                    function()
        self._take(before)

    def advance(self, updates: int) -> None:
        """Train for a number of updates."""
        with computing(self.precision):
            for _ in range(updates):
                if not self._laid_out or self.updates % self.batches.updates_per_epoch == 0:
                    self.batches.begin(self.updates)
                    self._laid_out = True
                self.schedule.apply(self.updates, self.optimizer.set)
                self._one_update()
                self.updates += 1
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # whoever reads a clock sees what was done

    def _one_update(self) -> None:
        if not self.optimizer.probes_at(self.updates):
            self._plain()
        elif self.updates == 0:
            self._update(0)  # the warm-up
        else:
            self._probing()

    def _update(self, since_probe: int | None) -> None:
        """Take the next batch, move every trial; first measure, unless `since_probe` is None."""
        batch = self.batches.next()
        if since_probe is not None:
            hessian = self.passes.hessian(self.parameters, *batch)
            self.optimizer.probe(hessian, since_probe)
            gradients = hessian.gradients
        else:
            gradients = self.passes.gradients(self.parameters, *batch)
        values = self.parameters.values()
        self.optimizer.move(
            [
                torch.zeros_like(p) if g is None else g
                for p, g in zip(values, gradients, strict=True)
            ]
        )

    @torch.no_grad()
    def errors(self) -> list[float]:
        """Return the reported error of every trial over the whole training set."""
        trials = self._stacked
        total = torch.zeros(trials, dtype=torch.float64, device=self.device)
        with computing(self.precision):
            for x, y in pieces(self.data, max(1, _CASES_AT_ONCE // trials)):
                total += len(x) * self.passes.errors(self.parameters, x, y)
        return [value / len(self.data[0]) for value in total[self._rows].tolist()]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of the trials, by position; the others are dropped."""
        self.trials = [self.trials[row] for row in rows]
        self._rows = [self._rows[row] for row in rows]
        # Compiling anew takes longer than a GPU loses on a few trials that nobody looks at.
        if self.device.type == "cuda" and 2 * len(rows) > self._stacked:
            return
        tensors = self.state_dict()["tensors"]
        self._rebuild(tensors["parameters"])
        self._take(tensors)
        self._rehearse()

    def state_dict(self) -> dict[str, Any]:
        """Return all that a later run needs to go on exactly: tensors and plain values."""
        kept = torch.tensor(self._rows, device=self.device)
        tensors = _each(self._tensors(), lambda tensor: tensor.detach()[kept])
        return {"updates": self.updates, "tensors": tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned for the same trials."""
        self._take(state["tensors"])
        self.updates, self._laid_out = state["updates"], False

    def _tensors(self) -> dict[str, Any]:
        """Everything that training changes; the first dimension counts trials."""
        return {"parameters": self.parameters, "optimizer": self.optimizer.tensors()}

    @torch.no_grad()
    def _take(self, tensors: dict[str, Any]) -> None:
        """Copy into the tensors that are there: captured graphs know no others."""
        _copy(tensors, self._tensors())
        self.optimizer.renew()

    def _lay_out_as_gradients(self) -> None:
        """Give parameters the memory order of their gradients, so that updates read in order."""
        size, trials = self.trials[0].batch_size, len(self.trials)
        x, y = (tensor[:size].expand(trials, -1, *tensor.shape[1:]) for tensor in self.data)
        gradients = self.passes.gradients(self.parameters, x, y)
        self._orders = {
            name: memory_order(p if g is None else g)
            for (name, p), g in zip(self.parameters.items(), gradients, strict=True)
        }


def _each(tree: Any, change: Any) -> Any:
    """Apply a function to every tensor of nested dictionaries and lists."""
    if isinstance(tree, dict):
        return {key: _each(value, change) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_each(value, change) for value in tree]
    return change(tree)


def _copy(source: Any, target: Any) -> None:
    """Copy nested tensors into others of the same shape, in place."""
    if isinstance(target, dict):
        for key in target:
            _copy(source[key], target[key])
    elif isinstance(target, list):
        for one, other in zip(source, target, strict=True):
            _copy(one, other)
    else:
        target.copy_(source)
