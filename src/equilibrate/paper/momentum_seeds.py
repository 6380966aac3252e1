"""How many seeds the arms of the momentum studies have, how far they came, and what that tells."""

from collections.abc import Mapping, Sequence
from typing import Any

from equilibrate.paper.arm_records import Arm, least_to_most
from equilibrate.paper.figure import Verdict
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS

Arms = Mapping[str, Arm]
"""Arms of one task by their names."""


def evidence(tasks: Mapping[str, Arms], study: str = "momentum") -> str:
    """Return what a study's arms rest on, as text: their trials and seeds."""
    arms = [arm for found in tasks.values() for arm in found.values()]
    trials, seeds = least_to_most(len(arm.searched) for arm in arms), min(seeds_of(tasks))
    how = "all trained to the end" if study == "damped" else "by successive halving"
    names = dict.fromkeys(arm.label for arm in arms)
    alone = "" if len(names) == len(MOMENTUM_ARMS) else f" ({' and '.join(names)} alone)"
    return f"{study}{alone}: best of {trials} trials an arm {how}, {seeds} seed(s)"


def seeds_of(tasks: Mapping[str, Arms]) -> list[int]:
    """Return how many seeds every winner has."""
    return [len(arm.seeds) for arms in tasks.values() for arm in arms.values()]


def with_seeds(counts: Sequence[int], verdict: Verdict, said: str) -> tuple[Verdict, str]:
    """Confirm nothing before all that is compared has more than one seed."""
    if verdict == "does not hold" or min(counts) > 1:
        return verdict, said
    who = f"one seed{' of some winners' if max(counts) > 1 else ''} so far"
    return "not yet run", f"{who}, not judged: {said}"


def came(record: Mapping[str, Any]) -> float:
    """Return the last epoch that a run reached."""
    return float(record["curve"]["epoch"][-1])
