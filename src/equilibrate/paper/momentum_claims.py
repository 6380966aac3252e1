"""What the momentum studies say about the paper's sentences: S16, and S17 by its own module.

A run that was cut counts as far as it came: errors are then compared at the last epoch that all of
them reached.
"""

from collections.abc import Collection, Mapping

from equilibrate.paper.arm_drawing import TITLES
from equilibrate.paper.arm_records import Arm, arms_of, error_at, told
from equilibrate.paper.figure import Judgement, Records, Verdict
from equilibrate.paper.momentum_arms import PLAIN, momentum_arms
from equilibrate.paper.momentum_seeds import Arms, came, evidence, with_seeds
from equilibrate.paper.state_of_the_art import MNIST, best_of, compared, state_of_the_art
from equilibrate.study.outcome import Spread


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
        "momentum": compared(found),
        "falling": compared(fell),
        "damped": straight,
    }
    best = compared(best_of(studies.values()))
    judged = []
    if set(MNIST) & best.keys():
        judged.append(state_of_the_art(best, studies, first_rungs))
    pairs = {task: (arms, arms_of(plain, task)) for task, arms in found.items()}
    both = {task: two for task, two in pairs.items() if all("rmsprop" in arms for arms in two)}
    if both:
        judged.append(_mixes(both))
    return judged


def _trained(arms: Arms) -> Arms:
    """Return the arms whose winners were trained after the search: before, nothing is judged."""
    return {n: arm for n, arm in arms.items() if arm.longest["epochs"] > arm.best["epochs"]}


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
    rests_on = f"{evidence(found)}; without momentum: records of figure3"
    # Only where momentum helps everywhere do the others decide.
    deciding = {"rmsprop"} if len(helps) < len(gains) else set(PLAIN)
    counts = [n for two in tasks.values() for n in _seeds_compared(*two, deciding)]
    verdict, ours = with_seeds(counts, verdict, said + correction)
    return Judgement("S16", verdict, ours, rests_on, gains)


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
    furthest = [{r["seed"]: came(r) for r in (*arm.seeds, *arm.long)} for arm in arms]
    shared = set.intersection(*map(set, furthest))
    return max(min(came[seed] for came in furthest) for seed in shared)


def _at(epoch: float, *arms: Arm) -> list[Spread]:
    """Return the error of arms at an epoch, over the seeds that all of them were trained with."""
    found: list[dict[int, float]] = []
    for arm in arms:
        runs = {record["seed"]: record for record in (*arm.seeds, *arm.long)}
        over = {s: r for s, r in runs.items() if r["status"] == "diverged" or came(r) >= epoch}
        found.append({seed: error_at(record, epoch) for seed, record in over.items()})
    shared = set.intersection(*(set(errors) for errors in found))
    return [Spread.of([errors[seed] for seed in sorted(shared)]) for errors in found]


def _seeds_compared(mixed: Arms, plain: Arms, deciding: Collection[str]) -> list[int]:
    """Return over how many seeds each of these methods was compared."""
    epoch = _shared(mixed, plain)
    pairs = [(mixed[n], plain[PLAIN[n]]) for n in deciding if n in mixed and PLAIN[n] in plain]
    return [_at(epoch, *pair)[0].seeds for pair in pairs]


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
