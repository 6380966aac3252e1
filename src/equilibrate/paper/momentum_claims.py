"""What the momentum study says about the paper's sentences: S16 and S17.

A run that was cut counts as far as it came: errors are then compared at the last epoch that all of
them reached.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from equilibrate.paper.arm_drawing import TITLES
from equilibrate.paper.arm_records import (
    Arm,
    ahead,
    arms_of,
    error_at,
    least_to_most,
    numbers_of,
    told,
)
from equilibrate.paper.figure import Judgement, Records, Verdict
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS, PLAIN, momentum_arms
from equilibrate.study.outcome import Spread

Arms = Mapping[str, Arm]

RECORD = 0.73  # NAG's training error on MNIST after 750,000 updates, Sutskever et al. 2013
AIM = 0.60  # about K-FAC's, which took far larger batches
EARLY = 1.9  # asked of ESGD at the first rung on MNIST
HOW = {
    "momentum": "",
    "falling": ", falling learning rate",
    "damped": ", falling learning rate and more damping",
}
RIVALS = ("nag", "rmsprop", "adam")
MNIST = ("mnist", "mnist-linear")


def claims(
    records: Records,
    plain: Records,
    first_rungs: Mapping[str, int],
    falling: Records = (),
    damped: Records = (),
) -> list[Judgement]:
    """Judge what is recorded; the rungs are epochs by task.

    `plain` are Figure 3's records, `falling` those with a learning rate that falls, `damped` those
    with more damping, of which all trials were trained to the end.
    """
    found, fell = (
        {task: _trained(momentum_arms(own, task)) for task in first_rungs}
        for own in (records, falling)
    )
    straight = {task: momentum_arms(damped, task) for task in first_rungs}
    studies: dict[str, Mapping[str, Arms]] = {
        "momentum": _compared(found),
        "falling": _compared(fell),
        "damped": straight,
    }
    best = _compared(_best_of(studies.values()))
    judged = []
    if set(MNIST) & best.keys():
        judged.append(_state_of_the_art(best, studies, first_rungs))
    pairs = {task: (arms, arms_of(plain, task)) for task, arms in found.items()}
    both = {task: two for task, two in pairs.items() if all("rmsprop" in arms for arms in two)}
    if both:
        judged.append(_mixes(both))
    return judged


def _compared(tasks: Mapping[str, Arms]) -> dict[str, Arms]:
    return {task: arms for task, arms in tasks.items() if {"esgd", *RIVALS} <= arms.keys()}


def _best_of(studies: Iterable[Mapping[str, Arms]]) -> dict[str, Arms]:
    """Return every arm on every task as it is in the study where it ends lower, rivals as well."""
    best: dict[str, dict[str, Arm]] = {}
    for task, arms in (item for tasks in studies for item in tasks.items()):
        own = best.setdefault(task, {})
        for name, arm in arms.items():
            own[name] = min(own.get(name, arm), arm, key=lambda each: each.error().median)
    return {task: own for task, own in best.items() if own}


def _trained(arms: Arms) -> Arms:
    """Return the arms whose winners were trained after the search: before, nothing is judged."""
    return {n: arm for n, arm in arms.items() if arm.longest["epochs"] > arm.best["epochs"]}


def _evidence(tasks: Mapping[str, Arms], study: str = "momentum") -> str:
    arms = [arm for found in tasks.values() for arm in found.values()]
    trials, seeds = least_to_most(len(arm.searched) for arm in arms), _seeds(tasks)
    how = "all trained to the end" if study == "damped" else "by successive halving"
    names = dict.fromkeys(arm.label for arm in arms)
    alone = "" if len(names) == len(MOMENTUM_ARMS) else f" ({' and '.join(names)} alone)"
    return f"{study}{alone}: best of {trials} trials an arm {how}, {seeds} seed(s)"


def _seeds(tasks: Mapping[str, Arms]) -> int:
    """Return how many seeds every winner has at least."""
    return min(len(arm.seeds) for arms in tasks.values() for arm in arms.values())


def _with_seeds(tasks: Mapping[str, Arms], verdict: Verdict, said: str) -> tuple[Verdict, str]:
    """Confirm nothing before every winner has more than one seed."""
    if verdict == "does not hold" or _seeds(tasks) > 1:
        return verdict, said
    most = max(len(arm.seeds) for arms in tasks.values() for arm in arms.values())
    who = f"one seed{' of some winners' if most > 1 else ''} so far"
    return "not yet run", f"{who}, not judged: {said}"


def _state_of_the_art(
    best: Mapping[str, Arms],
    studies: Mapping[str, Mapping[str, Arms]],
    first_rungs: Mapping[str, int],
) -> Judgement:
    """Judge S17: NAG's published record reached on MNIST, and the rivals beaten on every task.

    `best` are the arms at their best. A study is told as far as it is recorded.
    """
    reached = [t for t in MNIST if t in best and best[t]["esgd"].error().median <= RECORD]
    behind = [task for task, arms in best.items() if not _first(arms)]
    verdict: Verdict = "does not hold"
    if reached:
        verdict = "holds with a correction" if behind else "holds"
    listed = [
        (HOW[name], task, arms)
        for name, own in studies.items()
        for task, arms in own.items()
        if arms
    ]
    said = [_told(task, arms, first_rungs[task], how) for how, task, arms in listed]
    if verdict == "holds with a correction":
        where = ", ".join(TITLES[task] for task in behind)
        said.append(f"Correction: the record of 2013 is reached, a rival is as good on {where}")
    numbers = {f"{task}{how}": numbers_of(arms) for how, task, arms in listed}
    told_of = {s: {t: own for t, own in tasks.items() if own} for s, tasks in studies.items()}
    evidence = "; ".join(_evidence(tasks, study) for study, tasks in told_of.items() if tasks)
    verdict, ours = _with_seeds(best, verdict, "; ".join(said))
    return Judgement("S17", verdict, ours, evidence, numbers)


def _common(arms: Arms) -> float:
    """Return the last epoch that all seeds of all arms reached, but those that diverged."""
    records = [r for arm in arms.values() for r in arm.seeds if r["status"] != "diverged"]
    return float(min(map(_came, records)))


def _first(arms: Arms) -> bool:
    """Tell whether every seed of ESGD ended below every seed of the rivals."""
    ours, epoch = arms["esgd"], _common(arms)
    return all(ahead(ours.error(epoch), arms[name].error(epoch)) for name in RIVALS)


def _told(task: str, arms: Arms, first: int, how: str) -> str:
    epoch, per_epoch = _common(arms), next(iter(arms.values())).updates_per_epoch
    ends = ", ".join(f"{arm.label} {told(arm.error(epoch))}" for arm in arms.values())
    early = {name: min(error_at(r, first) for r in arm.searched) for name, arm in arms.items()}
    starts = ", ".join(f"{arms[name].label} {error:.3g}" for name, error in early.items())
    text = f"{TITLES[task]}{how}, {epoch * per_epoch:,.0f} updates: {ends}"
    ours = task in MNIST and "esgd" in arms
    if ours:
        text += f" (published NAG {RECORD}; aim {AIM:.2f}"
        text += f" {'reached' if arms['esgd'].error().median <= AIM else 'not reached'})"
    text += f"; best of the search at {first * per_epoch:,.0f} updates: {starts}"
    if ours:
        text += f" (asked of ESGD: {EARLY}, {'met' if early['esgd'] <= EARLY else 'not met'})"
    return text


def _mixes(tasks: Mapping[str, tuple[Arms, Arms]]) -> Judgement:
    """Judge S16 by how many times the error falls where momentum is added, other things searched.

    It holds where momentum does not help RMSProp on any task; it holds with a correction where it
    helps on some tasks only, or helps RMSProp less than every other method.
    """
    gains = {task: _gains(*two) for task, two in tasks.items()}
    helps = [task for task, found in gains.items() if found["rmsprop"] > 1]
    least = all(_least(found) for found in gains.values())
    verdict: Verdict = "does not hold"
    correction = ""
    if not helps:
        verdict = "holds"
    elif len(helps) < len(gains):
        verdict = "holds with a correction"
        correction = f"; Correction: it helps on {', '.join(TITLES[task] for task in helps)}"
    elif least:
        verdict = "holds with a correction"
        correction = "; Correction: it helps RMSProp, but every other method more"
    said = "; ".join(_gains_told(task, *tasks[task], gains[task]) for task in tasks)
    found = {task: two[0] for task, two in tasks.items()}
    evidence = f"{_evidence(found)}; without momentum: records of figure3"
    verdict, ours = _with_seeds(found, verdict, said + correction)
    return Judgement("S16", verdict, ours, evidence, gains)


def _gains(mixed: Arms, plain: Arms) -> dict[str, float]:
    """Return the error without momentum over that with it, of every method that has both."""
    epoch, found = _shared(mixed, plain), {}
    for name, other in PLAIN.items():
        if name in mixed and other in plain:
            own, without = _at(epoch, mixed[name], plain[other])
            found[name] = without.median / own.median
    return found


def _least(gains: Mapping[str, float]) -> bool:
    others = [gain for name, gain in gains.items() if name != "rmsprop"]
    return bool(others) and gains["rmsprop"] < min(others)


def _shared(mixed: Arms, plain: Arms) -> float:
    """Return the last epoch that every method has reached at one seed, on both sides."""
    pairs = [(mixed[n], plain[o]) for n, o in PLAIN.items() if n in mixed and o in plain]
    return min(_reached_by_both(*pair) for pair in pairs)


def _reached_by_both(*arms: Arm) -> float:
    furthest = [{r["seed"]: _came(r) for r in (*arm.seeds, *arm.long)} for arm in arms]
    shared = set.intersection(*map(set, furthest))
    return max(min(came[seed] for came in furthest) for seed in shared)


def _at(epoch: float, *arms: Arm) -> list[Spread]:
    """Return the error of arms at an epoch, over the seeds that all of them were trained with."""
    found: list[dict[int, float]] = []
    for arm in arms:
        runs = {record["seed"]: record for record in (*arm.seeds, *arm.long)}
        over = {s: r for s, r in runs.items() if r["status"] == "diverged" or _came(r) >= epoch}
        found.append({seed: error_at(record, epoch) for seed, record in over.items()})
    shared = set.intersection(*(set(errors) for errors in found))
    return [Spread.of([errors[seed] for seed in sorted(shared)]) for errors in found]


def _came(record: Mapping[str, Any]) -> float:
    """Return the last epoch that a run reached."""
    return float(record["curve"]["epoch"][-1])


def _gains_told(task: str, mixed: Arms, plain: Arms, gains: Mapping[str, float]) -> str:
    epoch = _shared(mixed, plain)
    own, other = _at(epoch, mixed["rmsprop"], plain["rmsprop"])
    others = [name for name in gains if name != "rmsprop"]
    rest = ", ".join(f"{mixed[name].label} {gains[name]:.2f}" for name in others)
    return (
        f"{TITLES[task]}, {epoch:g} epochs: RMSProp {told(other)} without, {told(own)} with "
        f"momentum, which divides the error by {gains['rmsprop']:.2f}; that of the others by "
        f"{rest or 'not known'}"
    )
