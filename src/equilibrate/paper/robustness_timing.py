"""The cost of an update: SGD against ESGD with a probe in so many steps, on the device at hand.

The trials of a figure share a stack, so that their records cannot tell what each of them costs.
Here SGD and ESGD take turns, every round on the same work, so that drift hits both alike.
"""

from dataclasses import asdict

import torch

from equilibrate.paper.records import Data, Store
from equilibrate.paper.robustness_points import METHODS, SHIPPED, Timing
from equilibrate.study.files import say
from equilibrate.study.problem import Problem
from equilibrate.study.provenance import device_name
from equilibrate.study.stack import Stack
from equilibrate.study.timing import in_turn
from equilibrate.study.trial import Trial


def timing(store: Store, problem: Problem, task: str, precision: str, chosen: Timing) -> Data:
    """Return the record of the seconds per update of every contestant in every round."""
    settings = {"task": task, "precision": precision, **asdict(chosen)}

    def measured() -> Data:
        say(f"robustness: timing an update of each method ({task})")
        return measure(store.device, problem, precision, chosen)

    return store.get("robustness-timing", settings, measured)[0]


def measure(device: str, problem: Problem, precision: str, chosen: Timing) -> Data:
    """Time SGD and each ESGD in turn; a round is the longest interval between two probes."""
    updates = max(chosen.every)
    contestants = {"sgd": None, **{str(every): every for every in chosen.every}}
    stacks = {
        name: _stack(device, problem, precision, chosen, every)
        for name, every in contestants.items()
    }
    for stack in stacks.values():
        stack.advance(updates)  # the warm-up is not what is timed
    times = in_turn(stacks, updates, chosen.rounds)
    seconds = {name: [each / chosen.together for each in own] for name, own in times.items()}
    return {"seconds": seconds, "device": device_name(device)}


def _stack(
    device: str, problem: Problem, precision: str, chosen: Timing, every: int | None
) -> Stack:
    """Return a stack of SGD, or of ESGD with one probe in `every` steps."""
    esgd = {**SHIPPED, "lr": 0.01, "probe_every": every, "warmup_probes": 2}
    method, settings = ("esgd", esgd) if every else ("sgd", {"lr": 0.01})
    size, epochs = problem.batch_size, chosen.epochs
    trial = Trial(problem.name, "", method, settings, 0, size, epochs, precision)
    return Stack(problem, METHODS[method], [trial] * chosen.together, torch.device(device))
