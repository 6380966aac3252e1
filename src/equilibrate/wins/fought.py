"""A fight with all that was measured about it: what pages and pictures are made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from equilibrate.wins import pictures
from equilibrate.wins.arena import Arena
from equilibrate.wins.fight import Result, fight
from equilibrate.wins.terms import Terms
from equilibrate.wins.timing import Pace, paces

_PICTURED = "image"


@dataclass(frozen=True)
class Fought:
    """A fight, the pace of its fighters on each task, and their faults on each picture by name."""

    terms: Terms
    results: Sequence[Result]
    paces: Sequence[Mapping[str, Pace]]
    faults: Mapping[str, Mapping[str, Tensor]]

    def result(self, task: str) -> Result:
        """Return the result of one task."""
        return next(result for result in self.results if result.task.name == task)


def fought(terms: Terms, arena: Arena) -> Fought:
    """Fight and measure by some terms; what is recorded is not done again."""
    results = fight(terms.made(), terms.plan, arena)
    pictured = [result for result in results if result.task.name.startswith(_PICTURED)]
    return Fought(
        terms,
        results,
        [paces(r, terms.plan.schedule(r.task), arena) for r in results],
        {r.task.name: pictures.faults(r, terms.plan.schedule(r.task), arena) for r in pictured},
    )
