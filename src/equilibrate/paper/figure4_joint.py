"""Claims that need Figure 3 as well: S12, S21, S26; not yet run where its records are missing."""

from collections.abc import Sequence

from equilibrate.paper.arm_records import Arm, arms_of
from equilibrate.paper.figure import Judgement, Records, Verdict
from equilibrate.paper.figure4_judging import (
    DRIFT,
    FLOOR,
    NEAR,
    early_and_late,
    evidence,
    not_run,
    over_seeds,
    said,
    said_free,
)
from equilibrate.paper.figure4_reading import most_anywhere, noise_shares, series, task, title
from equilibrate.study.outcome import Spread

ESGD = ("esgd", "esgd-warm", "esgd-literal")
LEAD = 0.99  # ahead: an error below this share of the other's
BETTER = 0.95  # what counts as trained better


def joint_claims(probes: int, records: Records, figure3: Records | None) -> list[Judgement]:
    """Judge S12, S21 and S26 from the records of both figures."""
    trained = [record for record in figure3 or () if "method" in record]  # others are times
    curves = {name: arms_of(trained, name) for name in ("mnist", "curves-like")}
    return [
        _coincide(probes, records, curves),
        _drift_and_lead(probes, records, curves["mnist"]),
        estimator_noise(probes, records, curves),
    ]


def _best_esgd(arms: dict[str, Arm]) -> Arm | None:
    found = [arms[name] for name in ESGD if name in arms]
    return min(found, key=lambda arm: arm.error().median, default=None)


def _margin(arms: dict[str, Arm]) -> float | None:
    """Return how many times RMSProp's error is ESGD's at the end of the search."""
    esgd = _best_esgd(arms)
    if esgd is None or "rmsprop" not in arms:
        return None
    return arms["rmsprop"].error().median / esgd.error().median


def _coincide(probes: int, records: Records, arms: dict[str, dict[str, Arm]]) -> Judgement:
    """The margin is smaller on CURVES-like, and so are the distances, which are near there."""
    curves, mnist = task(records, "curves-like"), task(records, "mnist")
    small, large = _margin(arms["curves-like"]), _margin(arms["mnist"])
    if curves is None or mnist is None or small is None or large is None:
        return not_run("S12")
    pairs = ("rmsprop_equilibration", "equilibration_jacobi")
    here, there = ([over_seeds(series(record, "literal", pair, probes)) for pair in pairs]
                   for record in (curves, mnist))  # fmt: skip
    smaller, nearer = small < large, here[0].high < there[0].low
    everywhere = all(found.high <= NEAR for found in here)
    judged: Verdict = "does not hold"
    if smaller and nearer:
        judged = "holds" if everywhere else "holds with a correction"
    ours = (
        f"RMSProp's error over ESGD's: {small:.2f} on {title(curves)}, {large:.2f} on MNIST. "
        f"RMSProp - equilibration {said(here[0])} there, {said(there[0])} on MNIST; equilibration "
        f"- Jacobi {said(here[1])} and {said(there[1])} ({probes} probes)"
    )
    if judged == "holds with a correction":
        ours += ". Correction: RMSProp and equilibration alone are near, Jacobi is not"
    numbers = {"margins": [small, large]}
    return Judgement("S12", judged, ours, f"{evidence(curves, mnist)}; records of figure3", numbers)


def lead_from(esgd: Arm, other: Arm) -> float | None:
    """Return the epoch from which ESGD stays ahead to the end, both at seed 0; None if never."""
    pairs = _errors(esgd, other)
    since: float | None = None
    for epoch, mine, theirs in pairs:
        since = (epoch if since is None else since) if mine < LEAD * theirs else None
    return since


def _errors(one: Arm, other: Arm) -> list[tuple[float, float, float]]:
    """Return (epoch, error, other's error) at the epochs that both were measured at."""
    mine, theirs = one.best["curve"], other.best["curve"]
    known = dict(zip(theirs["epoch"], theirs["error"], strict=True))
    every = zip(mine["epoch"], mine["error"], strict=True)
    return [(epoch, error, known[epoch]) for epoch, error in every if epoch in known]


def drift_from(found: Sequence[tuple[int, list[float]]]) -> int | None:
    """Return the epoch from which a distance stays in the upper half of its rise, None if none."""
    early, late = early_and_late(found)
    if late.median < DRIFT * early.median:
        return None
    half = (early.median + late.median) / 2
    below = [epoch for epoch, values in found if Spread.of(values).median <= half]
    return next(epoch for epoch, _ in found if epoch > max(below, default=0))


def _drift_and_lead(probes: int, records: Records, arms: dict[str, Arm]) -> Judgement:
    mnist, esgd = task(records, "mnist"), _best_esgd(arms)
    if mnist is None or esgd is None or "rmsprop" not in arms:
        return not_run("S21")
    lead = lead_from(esgd, arms["rmsprop"])
    pairs = ("rmsprop_jacobi", "rmsprop_equilibration")
    drifts = [drift_from(series(mnist, "literal", pair, probes)) for pair in pairs]
    times = [drift for drift in drifts if drift is not None and lead]
    together = any(0.5 <= drift / lead <= 2 for drift in times if lead)
    named = zip(("Jacobi", "equilibration"), drifts, strict=True)
    texts = [f"from {name} {'never' if d is None else f'from epoch {d} on'}" for name, d in named]
    ours = (
        f"{esgd.label} stays ahead of RMSProp {'never' if lead is None else f'from epoch {lead:g}'}"
        f"; RMSProp drifts {' and '.join(texts)} (a drift grows {DRIFT:g} times; its time is half "
        f"of the rise; coincides: within a factor of two)"
    )
    numbers = {"lead": lead, "drifts": drifts}
    judged: Verdict = "holds" if together else "does not hold"
    return Judgement("S21", judged, ours, f"{evidence(mnist)}; records of figure3", numbers)


def estimator_noise(
    probes: int, records: Records, arms: dict[str, dict[str, Arm]] | None = None
) -> Judgement:
    """Judge S26: how much of Jacobi is noise, and whether less noise trains better.

    Where Figure 3 is missing the diagonal alone is judged.
    """
    texts, shares = [], []
    for record in records:
        few, many = Spread.of(noise_shares(record, probes)), Spread.of(noise_shares(record))
        shares.append(few.median)
        literal = over_seeds(series(record, "literal", "equilibration_jacobi", probes))
        largest = most_anywhere(record)
        texts.append(
            f"{title(record)}: {few.median:.0%} of Jacobi's squared norm is noise at {probes} "
            f"probes, {many.median:.0%} at {largest}; equilibration - Jacobi {said(literal)} "
            f"(noise alone: {FLOOR}), noise-free {said_free(record, 'equilibration_jacobi')}"
        )
    ratios = _cleaner(arms or {})
    texts += [f"{name}: error with the averaged over the noisy diagonal {ratio:.2f}"
              for name, ratio in ratios.items()]  # fmt: skip
    noisy = max(shares) > 0.5
    judged: Verdict = "does not hold" if noisy else "holds"
    if noisy and ratios and min(ratios.values()) > BETTER:
        judged = "holds with a correction"
        texts.append("Correction: the diagonal is mostly noise, but less noise does not train "
                     "better")  # fmt: skip
    if not ratios:
        texts.append("whether less noise trains better is Figure 3's to say")
    numbers = {"noise_shares": shares, "cleaner_over_noisy": ratios}
    return Judgement("S26", judged, "; ".join(texts), evidence(*records), numbers)


def _cleaner(arms: dict[str, dict[str, Arm]]) -> dict[str, float]:
    """Return the error of Jacobi with the averaged diagonal over that with the noisy one."""
    both = {name: found for name, found in arms.items() if {"jacobi", "jacobi-clean"} <= set(found)}
    return {
        name: found["jacobi-clean"].error().median / found["jacobi"].error().median
        for name, found in both.items()
    }
