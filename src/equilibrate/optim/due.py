"""What is due: groups that were measured long enough ago, and parameters that never were."""

from typing import Any

from torch import Tensor

from equilibrate.curvature.graph import reached
from equilibrate.optim.several_losses import SeveralLosses

Group = dict[str, Any]


class Due(SeveralLosses):
    """An optimizer that tells when to measure."""

    @property
    def probe_due(self) -> bool:
        """Whether this step wants a probe: enough steps have passed, or a parameter is new.

        A parameter on which no loss depended so far does not count, until it has a gradient. Within
        the step that warms up, every further loss is wanted as well.
        """
        waiting = self._unmeasured() and self._waiting()
        new = bool(waiting) or bool(self._besides)
        return new or any(map(self._scheduled, self.param_groups))

    def _fresh(self, loss: Tensor, unmeasured: list[Tensor]) -> list[Tensor]:
        """Return what is measured for the first time; several ranks agree on it."""
        if self._ranks() is None:
            return reached(loss, unmeasured)
        if not self._waiting():
            return []
        self._agree("probe")
        return self._on_any_rank(dict.fromkeys(reached(loss, unmeasured)))[0]

    def _scheduled(self, group: Group) -> bool:
        """Tell whether enough steps have passed since a group that trains was measured."""
        enough = group["steps_since_probe"] >= group["probe_every"]  # never a modulus
        return enough and any(p.requires_grad for p in group["params"])

    def _warm_up_counts(self, fresh: list[Tensor]) -> dict[Tensor, int]:
        """Return how many vectors each parameter is measured with for the first time."""
        groups = self._groups() if fresh else {}
        return {p: groups[p]["warmup_probes"] for p in fresh}
