"""Stacked or one after the other: decided by what can be, then by measurement, then remembered.

A network or an optimizer that cannot be stacked trains alone, and the reason is told. Of what can
be stacked, a GPU takes all that fits its limit; on a CPU, where a stack gains little or loses, both
ways are timed on the problem itself and the faster is taken. The choice is kept with the records:
a study resumed elsewhere or on a busier day goes on as it began.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from equilibrate.study.alone import Alone
from equilibrate.study.choices import Choices
from equilibrate.study.course import Trainer
from equilibrate.study.files import say
from equilibrate.study.methods import Method
from equilibrate.study.problem import Problem
from equilibrate.study.stack import Stack
from equilibrate.study.stackable import why_not_stackable
from equilibrate.study.stacked_rules import structure, why_not_stacked
from equilibrate.study.timing import in_turn
from equilibrate.study.trial import Trial

MOST_ON_A_GPU = 64
MOST_ON_A_CPU = 8
_ROUNDS, _UPDATES = 3, 20  # of a measurement; an ESGD of twenty steps between probes meets one


def _here(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


@dataclass(frozen=True)
class Chooser:
    """Decides how trials train; `together` and `make_trainer` are what `run_study` asks for.

    Args:
        problem: to be trained.
        methods: by name.
        folder: of the study, where choices are remembered.
        device: to train on.
        at_once: trials in a stack at most; None decides by measurement.
        where: calls the function given, with its arguments, on such a device as will train.
        taken_along: the choices, where this is a copy on another machine.
    """

    problem: Problem
    methods: Mapping[str, Method]
    folder: Path
    device: torch.device
    at_once: int | None = None
    where: Callable[..., Any] = _here
    taken_along: Mapping[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Take the choices along to a machine that does not see the folder."""
        return {**vars(self), "where": _here, "taken_along": Choices(self.folder).all()}

    def together(self, trials: list[Trial]) -> list[list[Trial]]:
        """Split trials of one method into those that train at once."""
        groups = []
        for alike in self._alike(trials):
            width = self._width(alike)
            groups += [alike[k : k + width] for k in range(0, len(alike), width)]
        return groups

    def make_trainer(self, trials: list[Trial]) -> Trainer:
        """Return the trainer of a group: a stack, even of one, where so decided."""
        kind = Stack if self._choice(trials)["stacked"] else Alone
        return kind(self.problem, self.methods[trials[0].method], trials, self.device)

    def _width(self, trials: list[Trial]) -> int:
        choice = self._choice(trials)
        width = int(choice["width"])
        if self.at_once is None or self.at_once == width:
            return width
        if width == 1 and "reason" not in choice:
            say(
                f"{trials[0].method}: this study trains one trial after the other since it began, "
                f"and goes on so; for --at-once {self.at_once} choose another folder"
            )
        return self.at_once if width > 1 else 1

    def _alike(self, trials: Sequence[Trial]) -> list[list[Trial]]:
        alike: dict[str, list[Trial]] = {}
        for trial in trials:
            alike.setdefault(self._name(trial), []).append(trial)
        return list(alike.values())

    def _name(self, trial: Trial) -> str:
        optimizer = self.methods[trial.method].optimizer
        reason = why_not_stacked(optimizer, trial.settings)
        kind = "alone" if reason else str(structure(optimizer, trial.settings))
        return f"{trial.method} {kind}"

    def _choice(self, trials: list[Trial]) -> dict[str, Any]:
        name = self._name(trials[0])
        choice: dict[str, Any] = (
            self.taken_along[name]
            if self.taken_along is not None
            else Choices(self.folder).remember(name, lambda: self.where(self._decide, trials))
        )
        return choice

    def _decide(self, trials: list[Trial]) -> dict[str, Any]:
        method = self.methods[trials[0].method]
        reason = why_not_stacked(method.optimizer, trials[0].settings)
        if reason:
            say(f"{method.name}: trials train one after the other, for {reason}")
            return {"stacked": False, "width": 1, "reason": reason}
        if self.at_once == 1 and self.device.type != "cuda":  # a GPU captures a stack of one, too
            return {"stacked": False, "width": 1}
        reason = why_not_stackable(self.problem, trials[0].precision, self.device)
        if reason:
            if not self._told(reason):
                say(f"trials train one after the other: {reason}")
            return {"stacked": False, "width": 1, "reason": reason}
        if self.device.type == "cuda" or self.at_once:
            return {"stacked": True, "width": self.at_once or MOST_ON_A_GPU}
        return self._measured(trials[:MOST_ON_A_CPU])

    def _told(self, reason: str) -> bool:
        """Tell whether this study has decided for the same reason before: it is every method's."""
        known = self.taken_along if self.taken_along is not None else Choices(self.folder).all()
        return any(isinstance(c, dict) and c.get("reason") == reason for c in known.values())

    def _measured(self, trials: list[Trial]) -> dict[str, Any]:
        """Time an update of a trial both ways, in turn, and take the faster."""
        if len(trials) == 1:
            return {"stacked": False, "width": 1}
        method = self.methods[trials[0].method]
        stack = Stack(self.problem, method, trials, self.device)
        alone = Alone(self.problem, method, trials[:1], self.device)
        for trainer in (stack, alone):
            trainer.advance(1)  # with the warm-up, which is no measure of the rest
        stacked, single = _medians(stack, alone)
        stacked /= len(trials)
        better = min(stacked, single)
        say(
            f"{method.name}: {len(trials)} trials at once take {stacked / single:.2f} of the time "
            f"of one after the other; taken: {'stacked' if better == stacked else 'alone'}"
        )
        taken = better == stacked
        return {"stacked": taken, "width": len(trials) if taken else 1}


def _medians(*trainers: Trainer) -> list[float]:
    """Return each trainer's median time of an update, measured in turn."""
    found = in_turn(dict(enumerate(trainers)), _UPDATES, _ROUNDS)
    return [statistics.median(times) for times in found.values()]
