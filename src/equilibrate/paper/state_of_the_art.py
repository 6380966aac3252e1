"""S17: 'the results do reach state of the art when momentum is used'.

NAG's published record must be reached on MNIST, and the rivals beaten on every task. Every method
is taken from the study where it ends lowest. A run that was cut counts as far as it came: errors
are told at the last epoch that all of them reached, and those of ESGD and of one rival compared at
the last that these two reached.
"""

import math
from collections.abc import Iterable, Mapping

from equilibrate.paper.arm_drawing import TITLES
from equilibrate.paper.arm_records import Arm, ahead, error_at, numbers_of, told
from equilibrate.paper.figure import Judgement, Verdict
from equilibrate.paper.momentum_seeds import Arms, came, evidence, seeds_of, with_seeds

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


def compared(tasks: Mapping[str, Arms]) -> dict[str, Arms]:
    """Return the tasks on which ESGD and all its rivals are recorded."""
    return {task: arms for task, arms in tasks.items() if {"esgd", *RIVALS} <= arms.keys()}


def best_of(studies: Iterable[Mapping[str, Arms]]) -> dict[str, Arms]:
    """Return every arm on every task as it is in the study where it ends lower, rivals as well."""
    best: dict[str, dict[str, Arm]] = {}
    for task, arms in (item for tasks in studies for item in tasks.items()):
        own = best.setdefault(task, {})
        for name, arm in arms.items():
            own[name] = min(own.get(name, arm), arm, key=lambda each: each.error().median)
    return {task: own for task, own in best.items() if own}


def state_of_the_art(
    best: Mapping[str, Arms],
    studies: Mapping[str, Mapping[str, Arms]],
    first_rungs: Mapping[str, int],
) -> Judgement:
    """Judge S17: NAG's published record reached on MNIST, and the rivals beaten on every task.

    `best` are the arms at their best. A study is told as far as it is recorded.
    """
    listed = [
        (HOW[name], task, arms)
        for name, own in studies.items()
        for task, arms in own.items()
        if arms
    ]
    said = [_told(task, arms, first_rungs[task], how) for how, task, arms in listed]
    numbers = {f"{task}{how}": numbers_of(arms) for how, task, arms in listed}
    told_of = {s: {t: own for t, own in tasks.items() if own} for s, tasks in studies.items()}
    rests_on = "; ".join(evidence(tasks, study) for study, tasks in told_of.items() if tasks)
    return Judgement("S17", *_judged(best, said), rests_on, numbers)


def _judged(best: Mapping[str, Arms], said: list[str]) -> tuple[Verdict, str]:
    """Return the verdict and its text.

    A correction stands once those that it rests on, ESGD and a rival, have several seeds: more
    seeds of the others may name further rivals, and take none away.
    """
    several = {task: _with_several_seeds(arms) for task, arms in best.items()}
    if not _reached(best):
        return "does not hold", "; ".join(said)
    if _reached(several) and (unbeaten := _unbeaten(several)):
        text = [*said, _corrected(unbeaten), *_with_one_seed(best)]
        return "holds with a correction", "; ".join(text)
    if unbeaten := _unbeaten(best):
        corrected = "; ".join([*said, _corrected(unbeaten)])
        return with_seeds(seeds_of(best), "holds with a correction", corrected)
    return with_seeds(seeds_of(best), "holds", "; ".join(said))


def _with_one_seed(best: Mapping[str, Arms]) -> list[str]:
    found = [
        f"{arm.label} on {TITLES[task]}"
        for task, arms in best.items()
        for arm in arms.values()
        if len(arm.seeds) == 1
    ]
    return [f"one seed so far: {', '.join(found)}"] if found else []


def _reached(best: Mapping[str, Arms]) -> bool:
    """Tell whether ESGD is at the record on MNIST, with one of the code layers."""
    ours = [best[task]["esgd"] for task in MNIST if "esgd" in best.get(task, {})]
    return any(arm.error().median <= RECORD for arm in ours)


def _with_several_seeds(arms: Arms) -> Arms:
    return {name: arm for name, arm in arms.items() if len(arm.seeds) > 1}


def _unbeaten(best: Mapping[str, Arms]) -> dict[str, list[str]]:
    """Return what is to be said, by task, of the rivals that have a seed below one of ESGD's."""
    found = {task: _in_front(arms) for task, arms in best.items() if "esgd" in arms}
    return {task: texts for task, texts in found.items() if texts}


def _in_front(arms: Arms) -> list[str]:
    own, found = arms["esgd"], []
    for rival in (arms[name] for name in RIVALS if name in arms):
        epoch = _common([own, rival])
        ours, theirs = own.error(epoch), rival.error(epoch)
        if not ahead(ours, theirs):
            lower = theirs.median < ours.median
            found.append(f"{rival.label} {'is lower' if lower else 'is within the seeds'}")
    return found


def _corrected(unbeaten: Mapping[str, list[str]]) -> str:
    where = ", ".join(f"on {TITLES[task]} {' and '.join(own)}" for task, own in unbeaten.items())
    return f"Correction: the record of 2013 is reached; {where}"


def _common(arms: Iterable[Arm]) -> float:
    """Return the last epoch that all seeds of all arms reached, but those that diverged.

    Infinite where all of them did.
    """
    records = [r for arm in arms for r in arm.seeds if r["status"] != "diverged"]
    return float(min(map(came, records), default=math.inf))


def _told(task: str, arms: Arms, first: int, how: str) -> str:
    epoch, per_epoch = _common(arms.values()), next(iter(arms.values())).updates_per_epoch
    ends = ", ".join(f"{arm.label} {told(arm.error(epoch))}" for arm in arms.values())
    early = {name: min(error_at(r, first) for r in arm.searched) for name, arm in arms.items()}
    starts = ", ".join(f"{arms[name].label} {error:.3g}" for name, error in early.items())
    when = f"{epoch * per_epoch:,.0f} updates" if epoch < math.inf else "all diverged"
    text = f"{TITLES[task]}{how}, {when}: {ends}"
    ours = task in MNIST and "esgd" in arms
    if ours:
        text += f" (published NAG {RECORD}; aim {AIM:.2f}"
        text += f" {'reached' if arms['esgd'].error().median <= AIM else 'not reached'})"
    text += f"; best of the search at {first * per_epoch:,.0f} updates: {starts}"
    if ours:
        text += f" (asked of ESGD: {EARLY}, {'met' if early['esgd'] <= EARLY else 'not met'})"
    return text
