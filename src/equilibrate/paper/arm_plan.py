"""What is trained for one panel: arms, the rounds of their search, the seeds of their winners."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from equilibrate.study.methods import Method
from equilibrate.study.search import Search

Round = Mapping[str, Sequence[Mapping[str, Any]]]
"""The settings of the trials of every arm that are searched side by side."""


@dataclass(frozen=True)
class ArmSearch:
    """What is trained for one panel.

    Args:
        figure: whose records these are.
        problem: by its name among the problems.
        methods: the arms, by name.
        rounds: the settings of every arm's trials, as many in every arm; the winner is the best of
            all rounds. An arm may come in a later one.
        search: how far the trials of a round train.
        epochs: where winners are chosen.
        seeds: that winners train with afterwards.
        seed_epochs: how long they then train.
        carried: arms whose first of these seeds trains to the end of the search, as its winner did.
        precision: of the training.
        every: epochs between two points of a curve; None means about a hundred points.
        timed_together: trials in the stack that the time of an update is measured on.
        quick: whether it is a part of a quick figure, whose records lie apart.
        optional: whether it is left out where its data files are not at hand.
        apart: whether arms that are recorded are shown while others are not.
    """

    figure: str
    problem: str
    methods: Mapping[str, Method]
    rounds: Sequence[Round]
    search: Search
    epochs: int
    seeds: range
    seed_epochs: int
    precision: str
    every: float | None
    timed_together: int
    carried: Collection[str] = ()
    quick: bool = False
    optional: bool = False
    apart: bool = False

    def study(self, arm: str) -> str:
        """Return the name of the study that an arm belongs to.

        All arms of a full figure are one. Of a quick one each is its own, so that processes may
        train them at the same time: on a CPU nothing is gained by a stack.
        """
        name = f"{self.figure}-{self.problem}"
        return f"{name}-quick-{arm}" if self.quick else name

    @property
    def straight(self) -> bool:
        """Whether every trial trains to the end, where winners are chosen, and their seeds too."""
        return self.search.rungs == (self.seed_epochs,)

    @property
    def arms(self) -> list[str]:
        """The names of the arms, in the order in which they come."""
        return list(dict.fromkeys(arm for each in self.rounds for arm in each))

    @property
    def work(self) -> float:
        """Trials times epochs."""
        searched = sum(self.search.work(len(own)) for each in self.rounds for own in each.values())
        repeated = sum(self.length(arm, seed) for arm in self.arms for seed in self.seeds)
        return float(searched + repeated)

    def length(self, arm: str, seed: int) -> int:
        """Return the epochs that the winner of an arm trains with a seed."""
        further = arm in self.carried and seed == min(self.seeds)
        return self.search.rungs[-1] if further else self.seed_epochs
