"""How long one update of each arm takes, measured side by side on the device at hand."""

import statistics
from collections.abc import Mapping
from typing import Any

import torch

from equilibrate.paper.records import Data, Store
from equilibrate.study.files import say
from equilibrate.study.methods import Method
from equilibrate.study.problem import Problem
from equilibrate.study.stack import Stack
from equilibrate.study.timing import in_turn
from equilibrate.study.trial import Trial

_ROUNDS = 5
_UPDATES = 40  # two probes of an arm that takes one in twenty


def timing(
    store: Store,
    name: str,
    problem: Problem,
    task: str,
    arms: Mapping[str, Method],
    precision: str,
    together: int,
) -> Data:
    """Return the record of seconds per update and trial, in stacks of `together` equal trials."""
    settings = {
        "task": task,
        "arms": list(arms),
        "precision": precision,
        "together": together,
        "rounds": _ROUNDS,
        "updates": _UPDATES,
    }

    def measure() -> Data:
        say(f"{name.removesuffix('-timing')}: timing an update of each method ({task})")
        return _measure(store, problem, arms, precision, together)

    return store.get(name, settings, measure)[0]


def _measure(
    store: Store, problem: Problem, arms: Mapping[str, Method], precision: str, together: int
) -> Data:
    device = torch.device(store.device)
    stacks = {arm: _stack(problem, arms[arm], precision, together, device) for arm in arms}
    times = in_turn(stacks, _UPDATES, _ROUNDS)
    seconds = {arm: statistics.median(own) / together for arm, own in times.items()}
    return {"seconds_per_update": seconds, "device": str(store.device)}


def _stack(
    problem: Problem, arm: Method, precision: str, together: int, device: torch.device
) -> Stack:
    settings: dict[str, Any] = {**arm.settings(1)[0]}
    if "warmup_probes" in settings:
        settings["warmup_probes"] = min(settings["warmup_probes"], 2)  # not what is timed
    trial = Trial(problem.name, "", arm.name, settings, 0, problem.batch_size, 1, precision)
    stack = Stack(problem, arm, [trial] * together, device)
    stack.advance(1)
    return stack
