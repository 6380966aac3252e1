"""The optimizer among several ranks: what they compare, when, and what they average.

Ranks talk on steps that measure, never on others (but for shards with momentum, whose updates have
one size: `limiting`). Whether a step measures follows from the state
alone, which is equal on all ranks; what a rank's own loss reaches is told to the others. A
parameter that a loss reaches for the first time between two measurements is therefore measured
one step later than in a single process: by then every rank has its gradient.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from equilibrate.distributed import Ranks, Word, agree, checksum, is_sharded, ranks_of
from equilibrate.optim.keeping import Keeping
from equilibrate.optim.pending import Pending
from equilibrate.optim.state import zeros_like


class Agreeing(Keeping):
    """An optimizer that stays the same on every rank, or says that it does not."""

    def _ranks(self) -> Ranks | None:
        """Return the ranks that train this model together; None where there is one process."""
        return ranks_of(self._process_group)

    def _measured(self, parameter: Tensor) -> bool:
        raise NotImplementedError

    def _waiting(self) -> list[Tensor]:
        """Return what was never measured, unless no loss is known to depend on it."""
        return [
            p
            for p in self._all()
            if p.requires_grad and not self._measured(p) and not self.state.get(p, {}).get("absent")
        ]

    def _agree(self, place: str, *, skipped: bool = False) -> list[Word]:
        """Compare this rank with the others; empty where there are none."""
        ranks = self._ranks()
        if ranks is None:
            return []
        whole = [p for p in self._all() if not is_sharded(p)]  # shards differ, as they should
        gradients = [p.grad for p in whole] if place.startswith("step") else []
        mine = Word(
            place,
            settings=zlib.crc32(repr(self._settings()).encode()),
            parameters=checksum(whole),
            gradients=checksum(gradients),
            pending=bool(self._pending) and place != "probe",
            skipped=skipped,
        )
        return agree(ranks, mine, announced=bool(self._waiting()))

    def _settings(self) -> list[Any]:
        """Return all that must be equal on every rank, besides the tensors."""
        own = self.defaults.keys()  # what else a group holds is the user's, on each rank
        groups = [
            [(k, float(v) if isinstance(v := g[k], Tensor) else v) for k in sorted(own & g.keys())]
            for g in self.param_groups
        ]
        parameters = [
            (tuple(p.shape), p.dtype, p.requires_grad, int(self.state.get(p, {}).get("probes", 0)))
            for p in self._all()
        ]
        return [groups, parameters]

    def _on_any_rank(self, *chosen: Mapping[Tensor, Any]) -> list[list[Tensor]]:
        """Return, for each choice of parameters, those that any rank has chosen, in order."""
        everything = self._all()
        flags = [p in each for each in chosen for p in everything]
        ranks = self._ranks()
        found = iter(flags if ranks is None else ranks.any(flags))
        return [[p for p in everything if next(found)] for _ in chosen]

    def _mean(
        self, found: Mapping[Tensor, Tensor], asked: Sequence[Tensor]
    ) -> dict[Tensor, Tensor]:
        """Return the mean over ranks; one whose loss misses a parameter contributes zero to it.

        A sharded product is one tensor held by all ranks together: there is nothing to average.
        """
        ranks = self._ranks()
        if ranks is None:
            return dict(found)
        filled = {p: found[p] if p in found else zeros_like(p) for p in asked}
        whole = [p for p in asked if not is_sharded(p)]
        return filled | dict(zip(whole, ranks.mean([filled[p] for p in whole]), strict=True))

    def _mean_pending(self, pending: Pending) -> dict[Tensor, Tensor]:
        """Return what is pending, averaged over ranks before anything is squared."""
        if pending.averaged or self._ranks() is None:
            return pending.sums
        present, asked = self._on_any_rank(pending.sums, pending.asked)
        pending.asked = dict.fromkeys(asked)
        return self._mean(pending.sums, present)
