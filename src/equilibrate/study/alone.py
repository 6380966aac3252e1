"""One trial with the optimizer itself, in an ordinary training loop: the slow, obvious reference.

It trains what a stack cannot (networks with buffers or random layers, optimizers without a stacked
rule), and every stack is tested against it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from equilibrate.optim.moving import CurvatureOptimizer
from equilibrate.study.batches import Batches, pieces
from equilibrate.study.methods import Method
from equilibrate.study.precision import computing, dtype_of, forward
from equilibrate.study.problem import Problem
from equilibrate.study.scheduling import Scheduling
from equilibrate.study.stacked_rules import SCHEDULES
from equilibrate.study.trial import Trial

_CASES_AT_ONCE = 5_000


class Alone:
    """A trainer of one trial."""

    def __init__(
        self, problem: Problem, method: Method, trials: Sequence[Trial], device: torch.device
    ) -> None:
        (self.trial,) = trials
        self.problem, self.trials, self.device = problem, list(trials), device
        self.precision = self.trial.precision
        dtype = dtype_of(self.precision)
        self.network = problem.network(self.trial.seed).to(device, dtype)
        settings = {**SCHEDULES, **self.trial.settings}
        own = {name: value for name, value in settings.items() if name not in SCHEDULES}
        self.optimizer = method.optimizer(self.network.parameters(), **own)
        self.data = problem.on(device, dtype)
        self.batches = Batches(self.data, self.trial.batch_size, [self.trial.seed])
        total = self.trial.epochs * self.batches.updates_per_epoch
        self.schedule = Scheduling([settings], [total])
        self.updates = 0
        self._laid_out = self._failed = False
        self._random = torch.Generator().manual_seed(self.trial.seed).get_state()

    def advance(self, updates: int) -> None:
        """Train for a number of updates, with a random state of this trial's own."""
        self.network.train()
        with torch.random.fork_rng(devices=[]), computing(self.precision):
            torch.set_rng_state(self._random)
            for _ in range(updates):
                if not self._laid_out or self.updates % self.batches.updates_per_epoch == 0:
                    self.batches.begin(self.updates)
                    self._laid_out = True
                self.schedule.apply(self.updates, self._set)
                self._update()
                self.updates += 1
            self._random = torch.get_rng_state()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # whoever reads a clock sees what was done

    def _set(self, name: str, values: Sequence[float]) -> None:
        for group in self.optimizer.param_groups:
            group[name] = values[0]

    def _update(self) -> None:
        x, y = (tensor[0] for tensor in self.batches.next())
        with forward(self.precision, self.device):
            output = self.network(x)
        loss = self.problem.loss(output, y)
        if self._failed or not bool(loss.isfinite()):
            self._failed = True  # a run that left the numbers never comes back
            return
        if getattr(self.optimizer, "wants_closure", False):
            self.optimizer.step(lambda: self._evaluate(x, y))
            return
        if hasattr(self.optimizer, "probe"):  # ours, and any other that wants the live loss
            self.optimizer.probe(loss)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        try:
            self.optimizer.step()
        except RuntimeError:
            if not self._without_curvature():
                raise
            self._failed = True

    def _evaluate(self, x: Tensor, y: Tensor) -> float:
        """Compute the loss and its gradient once more, for an optimizer that asks for it."""
        with torch.enable_grad(), forward(self.precision, self.device):
            loss = self.problem.loss(self.network(x), y)
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
        return float(loss.detach())

    def _without_curvature(self) -> bool:
        """Tell whether there is no finite curvature to divide by: a failed run, not a fault."""
        if not isinstance(self.optimizer, CurvatureOptimizer):
            return False
        dropped = self.optimizer.param_groups[0]["dropped_probes"]
        return bool(dropped) and self.optimizer.unseen_share() == 1

    @torch.no_grad()
    def errors(self) -> list[float]:
        """Return the reported error over the whole training set; not a number once it failed."""
        if self._failed:
            return [float("nan")]
        self.network.eval()
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        with computing(self.precision):
            for x, y in pieces(self.data, _CASES_AT_ONCE):
                with forward(self.precision, self.device):
                    output = self.network(x)
                total += len(x) * self.problem.reported(output, y).reshape(())
        return [float(total) / len(self.data[0])]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with this one trial, or with none."""
        self.trials = [self.trials[row] for row in rows]

    def state_dict(self) -> dict[str, Any]:
        """Return all that a later run needs to go on exactly: tensors and plain values."""
        return {
            "updates": self.updates,
            "failed": self._failed,
            "random": self._random,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned for the same trial."""
        self.updates, self._failed = state["updates"], state["failed"]
        self._random = state["random"].cpu()
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.forget()
        self._laid_out = False
