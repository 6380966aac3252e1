"""What Figure 3 says about the paper's sentences: S6 to S11, S24 and S25.

'ESGD' is judged twice where it matters: Algorithm 1, whose average never forgets (to the letter, or
with a warm-up), and ESGD as shipped, whose average forgets, as the authors' own code does. An arm
that is ours and came later judges nothing: where it is recorded, the sentences on how far ESGD gets
tell its error beside.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from equilibrate.paper.arm_records import Arm, ahead, arms_of, numbers_of, told
from equilibrate.paper.arms import ARMS, LATER
from equilibrate.paper.figure import Judgement, Records, Verdict
from equilibrate.study.outcome import Spread, at_edge

Arms = dict[str, Arm]

ALGORITHM_1 = ("esgd-warm", "esgd-literal")
ESGD = ("esgd", *ALGORITHM_1)
RIVALS = ("rmsprop", "jacobi", "jacobi-clean")
SUTSKEVER_SGD = 2.1  # training error of SGD without momentum, Sutskever et al. 2013
PAPER_ESGD = 0.86
# Where the error of a later arm is told, and on which task.
BESIDE = {"S6": "MNIST", "S7": "MNIST", "S8": "MNIST", "S11": "CURVES-like"}
CLEARLY = 1.25  # an error ratio that counts as clearly better
THREE_TIMES = (2.0, 4.5)  # what 'approximately three times faster' may mean


def claims(
    records: Records, timings: Mapping[str, Mapping[str, float]] | None = None
) -> list[Judgement]:
    """Judge what the recorded tasks allow; the rest stays 'not yet run'.

    `timings` are the seconds of an update by task and arm, of the tasks where they are measured.
    """
    found = {"MNIST": arms_of(records, "mnist"), "CURVES-like": arms_of(records, "curves-like")}
    mnist, curves = ({k: arm for k, arm in own.items() if k not in LATER} for own in found.values())
    judged: list[Judgement] = []
    if _complete(mnist):
        judged += [f(mnist) for f in (_outperforms, _after_250, _reaches, _improve)]
        judged.append(_three_times(mnist, (timings or {}).get("mnist", {})))
    if _complete(mnist) and _complete(curves):
        judged += [_curves(mnist, curves), _abstract(mnist, curves)]
    if mnist or curves:
        judged.append(_ranges({"MNIST": mnist, "CURVES-like": curves}))
    beside = {task: _beside(task, arms) for task, arms in found.items()}
    return [
        replace(j, ours=j.ours + beside[BESIDE[j.claim]]) if j.claim in BESIDE else j
        for j in judged
    ]


def _beside(task: str, arms: Arms) -> str:
    """Return what the arms do that judge nothing; nothing before these are recorded."""
    said = [f"{arms[n].label} ({_ends(task, arms[n])})" for n in LATER if n in arms]
    return f"; not judged by what is ours: {', '.join(said)}" if said else ""


def _ends(task: str, arm: Arm) -> str:
    seeds = ["one seed"] if len(arm.seeds) == 1 else []
    further = arm.trained > arm.best["epochs"]
    last = [f"{arm.last:.3g} after {arm.trained} epochs"] if further else []
    return ", ".join([f"{task} {told(arm.error())}", *last, *seeds, *_edges(arm)])


def _edges(arm: Arm) -> list[str]:
    return at_edge(arm.best["settings"], {"lr": ARMS[arm.name].space["lr"]})


def _complete(arms: Arms) -> bool:
    return {"sgd", "rmsprop", "jacobi", "esgd"} <= arms.keys()


def best_of(arms: Arms, names: tuple[str, ...], epoch: float | None = None) -> tuple[Arm, Spread]:
    """Return the arm whose median seed is lowest at an epoch, of those named."""
    present = [arms[name] for name in names if name in arms]
    best = min(present, key=lambda arm: arm.error(epoch).median)
    return best, best.error(epoch)


def _evidence(arms: Arms) -> str:
    trials = max(len(arm.searched) for arm in arms.values())
    seeds = max(len(arm.seeds) for arm in arms.values())
    epochs = max(arm.best["epochs"] for arm in arms.values())
    longest = max(arm.trained for arm in arms.values())
    return (
        f"figure3: best of {trials} trial(s) an arm at {epochs} epochs, {seeds} seed(s), median "
        f"[least, greatest]; one seed to {longest} epochs"
    )


def _all(arms: Arms, epoch: float | None = None) -> str:
    return "; ".join(f"{arm.label} {told(arm.error(epoch))}" for arm in arms.values())


def _verdict(as_shipped: bool, algorithm_1: bool) -> Verdict:
    """Judge a sentence about ESGD: it holds for Algorithm 1, for what is shipped, or for none."""
    if algorithm_1:
        return "holds"
    return "holds with a correction" if as_shipped else "does not hold"


def _for_both(arms: Arms, test: Callable[[Spread], bool]) -> Verdict:
    algorithm_1 = best_of(arms, ALGORITHM_1)[1] if set(ALGORITHM_1) & arms.keys() else None
    return _verdict(test(arms["esgd"].error()), algorithm_1 is not None and test(algorithm_1))


def _outperforms(arms: Arms) -> Judgement:
    rivals = [arms[name].error() for name in RIVALS if name in arms]

    def better(error: Spread) -> bool:
        return all(ahead(error, rival) for rival in rivals)

    verdict, said = _with_seeds(arms, _for_both(arms, better), _all(arms))
    return Judgement("S6", verdict, said, _evidence(arms), numbers_of(arms))


def _with_seeds(arms: Arms, verdict: Verdict, said: str) -> tuple[Verdict, str]:
    """Judge nothing that rests on the spread of seeds before there is more than one."""
    if min(len(arm.seeds) for arm in arms.values()) > 1:
        return verdict, said
    return "not yet run", f"one seed so far, not judged: {said}"


def _after_250(arms: Arms) -> Judgement:
    """Judge by the ratio of the best rival's error to ESGD's, before and after 250 epochs."""
    ratios = {}
    for epoch in (50, 100, 250, 500, 1000):
        rival, ours = best_of(arms, RIVALS, epoch)[1], best_of(arms, ESGD, epoch)[1]
        ratios[epoch] = rival.median / ours.median
    grows = ratios[1000] > ratios[250] and ratios[500] > ratios[100]
    verdict: Verdict = "holds" if grows and ratios[1000] > 1 else "does not hold"
    ours_said = "best rival / best ESGD: " + ", ".join(
        f"{ratio:.2f} at {epoch}" for epoch, ratio in ratios.items()
    )
    return Judgement(
        "S7", verdict, ours_said, _evidence(arms), {str(k): v for k, v in ratios.items()}
    )


def _reaches(arms: Arms) -> Judgement:
    best = min((arms[name] for name in ESGD if name in arms), key=lambda arm: arm.last)
    verdict: Verdict = "holds" if best.last <= PAPER_ESGD else "does not hold"
    said = f"{best.last:.3g} ({best.label}) after {best.trained} epochs; " + "; ".join(
        f"{arms[name].label} {arms[name].last:.3g}" for name in ESGD if name in arms
    )
    return Judgement("S8", verdict, said, _evidence(arms), {"error": best.last})


def _improve(arms: Arms) -> Judgement:
    adaptive = {name: arm for name, arm in arms.items() if name != "sgd"}
    worse = [arm.label for arm in adaptive.values() if arm.last >= SUTSKEVER_SGD]
    verdict: Verdict = "does not hold" if worse else "holds"
    said = f"at or above {SUTSKEVER_SGD}: {', '.join(worse)}; " if worse else ""
    said += "; ".join(f"{arm.label} {arm.last:.3g}" for arm in adaptive.values())
    return Judgement("S9", verdict, said, _evidence(arms), numbers_of(adaptive))


def _three_times(arms: Arms, seconds: Mapping[str, float]) -> Judgement:
    target = arms["sgd"].last
    sgd = arms["sgd"].epochs_to(target)
    ratios = {name: sgd / arms[name].epochs_to(target) for name in ESGD if name in arms}
    best = max(ratios.values())
    verdict: Verdict = "holds" if THREE_TIMES[0] <= best <= THREE_TIMES[1] else "does not hold"
    if best > THREE_TIMES[1]:
        verdict = "holds with a correction"
    timed = [name for name in ratios if {"sgd", name} <= seconds.keys()]
    in_time = {name: ratios[name] * seconds["sgd"] / seconds[name] for name in timed}
    said = f"SGD's final {target:.3g} is reached in fewer epochs by a factor of {_factors(ratios)}"
    said += f"; in less time (not judged) by {_factors(in_time)}" if in_time else ""
    numbers = ratios | {f"{name}, in time": ratio for name, ratio in in_time.items()}
    return Judgement("S10", verdict, said, _evidence(arms), numbers)


def _factors(ratios: Mapping[str, float]) -> str:
    return ", ".join(f"{ratio:.1f} ({ARMS[name].label})" for name, ratio in ratios.items())


def _curves(mnist: Arms, curves: Arms) -> Judgement:
    """Judge S11 on CURVES-like images: ESGD first, and by less than on MNIST."""

    def lead(arms: Arms) -> float:
        return best_of(arms, RIVALS)[1].median / best_of(arms, ESGD)[1].median

    here, there = lead(curves), lead(mnist)
    verdict: Verdict = "does not hold"
    if here > 1:
        verdict = "holds" if here < there else "holds with a correction"
    said = f"CURVES-like, not CURVES: best rival / best ESGD {here:.2f} (MNIST {there:.2f}); "
    numbers = {"CURVES-like": here, "MNIST": there}
    return Judgement("S11", verdict, said + _all(curves), _evidence(curves), numbers)


def _abstract(mnist: Arms, curves: Arms) -> Judgement:
    """Judge S24; a median behind RMSProp's by less than the seeds differ is a correction."""
    said, level, better = [], True, True
    for name, arms in (("MNIST", mnist), ("CURVES-like", curves)):
        (best, ours), rmsprop = best_of(arms, ESGD), arms["rmsprop"].error()
        over_rmsprop = rmsprop.median / ours.median
        over_sgd = arms["sgd"].error().median / ours.median
        better &= over_rmsprop >= 1 and over_sgd >= CLEARLY
        level &= not ahead(rmsprop, ours) and over_sgd >= CLEARLY
        ratios = f"RMSProp / ESGD {over_rmsprop:.2f}, SGD / ESGD {over_sgd:.2f}"
        said.append(f"{name}: {ratios} ({best.label})")
    verdict: Verdict = "holds" if better else "does not hold"
    if level and not better:
        verdict = "holds with a correction"
        said.append("Correction: level with RMSProp where the seeds overlap")
    judged, text = _with_seeds({**mnist, "curves-like": curves["esgd"]}, verdict, "; ".join(said))
    evidence = f"MNIST, {_evidence(mnist)}; CURVES-like, {_evidence(curves)}"
    return Judgement("S24", judged, text, evidence)


def _ranges(tasks: dict[str, Arms]) -> Judgement:
    """Judge whether every winner's learning rate lies inside its decade, not at an end of it."""
    ends = [
        f"{task}, {arm.label}: {edge}"
        for task, arms in tasks.items()
        for arm in arms.values()
        for edge in _edges(arm)
    ]
    verdict: Verdict = "does not hold" if ends else "holds"
    said = "; ".join(ends) or "every winner lies inside its decade"
    arms = {f"{task} {name}": arm for task, found in tasks.items() for name, arm in found.items()}
    return Judgement("S25", verdict, said, _evidence(arms))
