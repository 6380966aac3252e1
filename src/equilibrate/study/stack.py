"""Many trials at once: every parameter has a leading dimension of trials.

The network runs under `torch.vmap`, the losses are summed, and one backward pass gives every trial
its own gradient. On a GPU an update is a captured graph whose elementwise parts are compiled.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.func import stack_module_state

from equilibrate.study import nested
from equilibrate.study.at_once import at_once
from equilibrate.study.batches import Batches, pieces
from equilibrate.study.blocks import make_blocks
from equilibrate.study.captured import Captured
from equilibrate.study.memory_order import laid_out, memory_order
from equilibrate.study.methods import Method
from equilibrate.study.passes import passes
from equilibrate.study.precision import computing, dtype_of
from equilibrate.study.problem import Problem
from equilibrate.study.spans import spans
from equilibrate.study.stacked_optimizer import StackedOptimizer
from equilibrate.study.trial import Trial

Due = tuple[int | None, ...]  # of every block: updates since its last probe, or None

_CASES_AT_ONCE = 20_000  # trials times cases in one piece of an evaluation


class Stack:
    """A trainer of several trials, of one method or of several.

    Trials of one method and structure (`stacked_rules`) should be neighbours: they form a block.
    """

    def __init__(
        self,
        problem: Problem,
        methods: Method | Mapping[str, Method],
        trials: Sequence[Trial],
        device: torch.device,
    ) -> None:
        self.methods = {methods.name: methods} if isinstance(methods, Method) else methods
        self.problem, self.trials, self.device = problem, list(trials), device
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

    @property
    def optimizer(self) -> StackedOptimizer:
        """The optimizer of a stack of one method."""
        (block,) = self.blocks
        return block.optimizer

    def _rebuild(self, parameters: Mapping[str, Tensor]) -> None:
        """Build all that depends on the number of trials around these parameters."""
        self.parameters = {
            name: laid_out(value, self._orders[name]).requires_grad_()
            for name, value in parameters.items()
        }
        self._stacked, self._rows = len(self.trials), list(range(len(self.trials)))
        seeds = [trial.seed for trial in self.trials]
        self.batches = Batches(self.data, self.trials[0].batch_size, seeds)
        values = list(self.parameters.values())
        per_epoch = self.batches.updates_per_epoch
        self.blocks = make_blocks(self.methods, self.trials, values, per_epoch)
        self._laid_out = False
        self._captured: dict[Due, Captured] = {}

    def _rehearse(self) -> None:
        """On a GPU, compile and capture now, and leave no trace: training then runs at its pace."""
        if self.device.type != "cuda":
            return
        before = nested.each(self._tensors(), lambda tensor: tensor.detach().clone())
        every = [block.optimizer.switches.get("probe_every", 1) for block in self.blocks]
        with computing(self.precision):
            for due in {self._due(update) for update in range(1, math.lcm(*every) + 1)}:
                for _ in range(Captured.CALLS):
                    self._begin(0)
                    self._update_captured(due)
        self._take(before)

    def advance(self, updates: int) -> None:
        """Train for a number of updates."""
        with computing(self.precision):
            for _ in range(updates):
                if not self._laid_out or self.updates % self.batches.updates_per_epoch == 0:
                    self._begin(self.updates)
                    self._laid_out = True
                for block in self.blocks:
                    tabled = block.timetable.names
                    block.schedule.apply(self.updates, block.optimizer.set, but=tabled)
                due = self._due(self.updates)
                (self._update_captured if self.updates else self._update)(due)
                self.updates += 1
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # whoever reads a clock sees what was done

    def _begin(self, update: int) -> None:
        """Lay out the epoch that holds this update."""
        self.batches.begin(update)
        for block in self.blocks:
            block.timetable.begin(update)

    def _due(self, update: int) -> Due:
        return tuple(block.due(update) for block in self.blocks)

    def _update_captured(self, due: Due) -> None:
        if due not in self._captured:
            self._captured[due] = Captured(lambda: self._update(due), self.device)
        self._captured[due]()

    def _update(self, due: Due) -> None:
        """Take the next batch, measure in the blocks where that is due, then move every trial."""
        for block in self.blocks:
            block.timetable.follow(self.batches.position)
        inputs, targets = self.batches.next()
        gradients: dict[int, Sequence[Tensor | None]] = {}  # by the start of a block
        for span in spans(self.blocks, due):
            own = {name: span.of(p) for name, p in self.parameters.items()}
            batch = span.of(inputs), span.of(targets)
            hessian = self.passes.hessian(own, *batch, compiled=span.long)
            span.measure(hessian)
            for block in span.blocks:
                gradients[block.start] = _each(hessian.gradients, partial(span.part, block))
        if len(gradients) < len(self.blocks):
            shared = self.passes.gradients(self.parameters, inputs, targets)
            for block in self.blocks:
                gradients.setdefault(block.start, _each(shared, block.of))
        # All is measured before anything moves: the blocks' parameters share their memory.
        moves = [partial(b.optimizer.move, gradients[b.start]) for b in self.blocks]
        at_once(moves, self.device)

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
        parameters = nested.each(self.parameters, lambda tensor: tensor.detach()[self._rows])
        optimizers = []
        for block in self.blocks:
            rows = [row - block.start for row in self._rows if block.start <= row < block.stop]
            if rows:
                optimizers.append(nested.each(block.optimizer.tensors(), itemgetter(rows)))
        tensors = {"parameters": parameters, "optimizers": optimizers}
        return {"updates": self.updates, "tensors": tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned for the same trials."""
        self._take(state["tensors"])
        self.updates, self._laid_out = state["updates"], False
        for block in self.blocks:
            block.schedule.forget()

    def _tensors(self) -> dict[str, Any]:
        """Everything that training changes; the first dimension counts trials."""
        optimizers = [block.optimizer.tensors() for block in self.blocks]
        return {"parameters": self.parameters, "optimizers": optimizers}

    @torch.no_grad()
    def _take(self, tensors: dict[str, Any]) -> None:
        """Copy into the tensors that are there: captured graphs know no others."""
        optimizers = self._by_block(tensors["optimizers"])
        nested.copy({**tensors, "optimizers": optimizers}, self._tensors())
        for block in self.blocks:
            block.optimizer.renew()

    def _by_block(self, optimizers: list[Any]) -> list[Any]:
        """Join what neighbouring optimizers kept where the block between two alike was dropped."""
        rest, found = list(optimizers), []
        for block in self.blocks:
            parts = [rest.pop(0)]
            while sum(len(part["step"]) for part in parts) < block.stop - block.start:
                parts.append(rest.pop(0))
            found.append(nested.joined(parts))
        return found

    def _lay_out_as_gradients(self) -> None:
        """Give parameters the memory order of their gradients, so that updates read in order."""
        size, trials = self.trials[0].batch_size, len(self.trials)
        x, y = (tensor[:size].expand(trials, -1, *tensor.shape[1:]) for tensor in self.data)
        gradients = self.passes.gradients(self.parameters, x, y)
        self._orders = {
            name: memory_order(p if g is None else g)
            for (name, p), g in zip(self.parameters.items(), gradients, strict=True)
        }


def _each(
    gradients: Sequence[Tensor | None], rows: Callable[[Tensor], Tensor]
) -> list[Tensor | None]:
    return [None if gradient is None else rows(gradient) for gradient in gradients]
