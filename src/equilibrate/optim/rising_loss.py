"""A loss that explodes, told at the probes: with momentum updates are limited and hide it.

Steps that diverge would otherwise end at infinity, which everybody sees. The limit on the growth of
an update keeps them finite, and the loss stays where it was thrown, a thousand times too high.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from equilibrate.distributed import local
from equilibrate.optim.state import State

_TIMES, _IN_A_ROW = 1000.0, 2  # a spike comes once

_EXPLODED = (
    "The loss is {:.3g} and was {:.3g} when it was first probed: training has most likely "
    "diverged. Start again with a lower learning rate; "
    "equilibrate.monitor.suggest_learning_rate(loss, parameters) measures where to begin."
)


@dataclass
class RisingLoss:
    """What is remembered of probed losses: the first step's sum, how many in a row were far above.

    A first loss near zero (a network that learns from its own copy) says nothing of how large one
    usually is. So the first is also measured against `own_size`, asked for at the first step.

    Example:
        >>> said = []
        >>> watch = RisingLoss()
        >>> for value in (2.0, 5000.0, 1.0, 5000.0, 6000.0):
        ...     watch.add(value)
        ...     watch.end_step(lambda: 0.5, said.append)
        >>> said[0].partition(":")[0], len(said)
        ('The loss is 6e+03 and was 2 when it was first probed', 1)
    """

    first: float | None = None
    size: float = 0.0
    high: int = 0
    now: float | None = None

    def add(self, loss: float | Tensor) -> None:
        """Take one more loss of this step."""
        value = float(loss.detach() if isinstance(loss, Tensor) else loss)
        self.now = value if self.now is None else self.now + value

    def end_step(self, own_size: Callable[[], float], tell: Callable[[str], None]) -> None:
        """Compare this step's losses with the first's, and tell where they have exploded."""
        value, self.now = self.now, None
        if value is None or not math.isfinite(value):
            return  # its product is dropped, which is told
        if self.first is None:
            self.first, self.size = value, max(abs(value), own_size())
        explodes = value > _TIMES * self.size > 0
        self.high = self.high + 1 if explodes else 0
        if self.high >= _IN_A_ROW:
            tell(_EXPLODED.format(value, self.first))


def own_size(parameters: Iterable[Tensor], states: Mapping[Tensor, State]) -> float:
    """Return the sum of D theta^2, by which moving every parameter by its own size changes a loss.

    Of this rank's part, so that no rank waits for another.
    """
    known = [(p, float(states[p]["scale"])) for p in parameters if p in states]
    return sum(scale * float(torch.linalg.vector_norm(local(p))) ** 2 for p, scale in known)
