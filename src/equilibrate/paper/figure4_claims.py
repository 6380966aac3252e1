"""What Figure 4's records say: the verdicts on S5, S18 to S20, S22 and S23, literal and noise-free.

A claim is first judged as the paper measured it, then by what is measured: it holds where both say
so, with a correction where only the literal version does. Intervals are the extremes over seeds.
"""

import statistics
from dataclasses import asdict
from typing import Any

from equilibrate.paper.figure import Judgement, Records, Verdict
from equilibrate.paper.figure4_joint import estimator_noise
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
    said_free_at_end,
    verdict,
    within,
)
from equilibrate.paper.figure4_reading import (
    clean,
    curvatures,
    decided,
    largest_literal,
    series,
    task,
    title,
)
from equilibrate.paper.records import Data
from equilibrate.study.outcome import Spread

# A curvature this share of the greatest is far above what float32 rounds in a product.
ROUNDING = 1e-4


def claims(probes: int, records: Records) -> list[Judgement]:
    """Judge all claims that need no other figure; those on a missing data set are not yet run."""
    curves, mnist = task(records, "curves-like"), task(records, "mnist")
    found = [_indefinite(records)]
    found += [_near_equilibration(probes, curves) if curves else not_run("S18")]
    found += [_diverges(probes, mnist) if mnist else not_run("S19")]
    found += [_exceeds(probes, mnist) if mnist else not_run("S20")]
    found += [_directions(probes, records), _vacuous(records)]
    return [*found, estimator_noise(probes, records)]


def _indefinite(records: Records) -> Judgement:
    """A negative Ritz value is a proof, a positive one beside it makes the Hessian indefinite."""
    every = [(r, trial) for r in records for _, trials in curvatures(r) for trial in trials]
    signs = [trial["least"] < -ROUNDING * trial["greatest"] < 0 for _, trial in every]
    texts = [_curvature_text(record) for record in records]
    steps = records[0]["settings"]["lanczos_steps"]
    ours = (
        f"indefinite at {sum(signs)} of {len(signs)} (points x seeds): {'; '.join(texts)}. "
        f"By {steps} Lanczos steps; every Ritz value is v'Hv of a unit vector, so that a negative "
        "one is a proof"
    )
    numbers = {r["task"]: [trials for _, trials in curvatures(r)] for r in records}
    judged: Verdict = "holds" if all(signs) else "holds with a correction"
    if not any(signs):
        judged = "does not hold"
    return Judgement("S5", judged, ours, evidence(*records), numbers)


def _curvature_text(record: Data) -> str:
    found = curvatures(record)

    def share(trials: list[dict[str, Any]]) -> str:
        return f"{statistics.median(trial['negative_share'] for trial in trials):.0%}"

    ratios = [t["least"] / t["greatest"] for _, trials in found for t in trials]
    return (
        f"{title(record)}: share of negative curvature {share(found[0][1])} at epoch "
        f"{found[0][0]}, {share(found[-1][1])} at {found[-1][0]}; least over greatest curvature "
        f"{min(ratios):.2g} to {max(ratios):.2g}"
    )


def _near_equilibration(probes: int, record: Data) -> Judgement:
    """Near 0.05 is at most 0.1, about 0.2 within a factor of two, on every seed."""
    rows = over_seeds(series(record, "literal", "rmsprop_equilibration", probes))
    diagonal = over_seeds(series(record, "literal", "rmsprop_jacobi", probes))
    literal = _all_within(rows, 0.0, 0.1) and _all_within(diagonal, 0.1, 0.4)
    checks = (within(record, "rmsprop_equilibration", 0.0, 0.1),
              within(record, "rmsprop_jacobi", 0.1, 0.4))  # fmt: skip
    free = False if False in checks else None if None in checks else True
    ours = (
        f"{title(record)}, {probes} probes: {said(rows)} from equilibration, {said(diagonal)} from "
        f"Jacobi. Noise-free: {said_free(record, 'rmsprop_equilibration')} and "
        f"{said_free(record, 'rmsprop_jacobi')}"
    )
    if literal and not free:
        ours += (
            f". Correction: a Jacobi diagonal that is noise alone is {FLOOR} from equilibration, "
            "so that the literal 0.2 says little about diag H"
        )
    numbers = {"equilibration": asdict(rows), "jacobi": asdict(diagonal)}
    return Judgement("S18", verdict(literal, free), ours, evidence(record), numbers)


def _all_within(found: Spread, low: float, high: float) -> bool:
    return low <= found.low and found.high <= high


def _diverges(probes: int, record: Data) -> Judgement:
    early, late = early_and_late(series(record, "literal", "rmsprop_jacobi", probes))
    literal = early.high <= NEAR and late.low >= DRIFT * early.high
    found = [(epoch, v) for epoch, v in clean(record, "rmsprop_jacobi") if all(map(decided, v))]
    free: bool | None = None
    text = "not decided at any point"
    if len(found) > 1:
        start, end = (Spread.of(value for value, _, _ in v) for _, v in (found[0], found[-1]))
        free = start.high <= NEAR and end.low >= DRIFT * start.high
        text = f"{said(start)} at epoch {found[0][0]}, {said(end)} at {found[-1][0]}"
    ours = (
        f"{title(record)}, {probes} probes: RMSProp {said(early)} from Jacobi over the first tenth "
        f"of training, {said(late)} over the last (near: at most {NEAR:g}; diverges: grows "
        f"{DRIFT:g} times). Noise-free: {text}"
    )
    judged = verdict(literal, free)
    if free and not literal:
        judged, ours = "holds with a correction", f"{ours}. Correction: only without noise"
    return Judgement("S19", judged, ours, evidence(record),
                     {"early": asdict(early), "late": asdict(late)})  # fmt: skip


def _exceeds(probes: int, record: Data) -> Judgement:
    """RMSProp from Jacobi against equilibration from Jacobi over the last tenth of training."""
    pairs = ("rmsprop_jacobi", "equilibration_jacobi", "rmsprop_equilibration")
    found = {pair: series(record, "literal", pair, probes) for pair in pairs}
    late = {pair: early_and_late(each)[1] for pair, each in found.items()}
    literal = late["rmsprop_jacobi"].low > late["equilibration_jacobi"].high
    ends = [clean(record, pair)[-1][1] for pair in pairs[:2] if clean(record, pair)]
    free: bool | None = None
    if len(ends) == 2 and all(decided(values) for end in ends for values in end):
        free = min(value for value, _, _ in ends[0]) > max(value for value, _, _ in ends[1])
    last = record["data"]["points"][-1]["epoch"]
    texts = [said_free_at_end(record, pair) for pair in pairs]
    ours = (
        f"{title(record)} near epoch {last}, {probes} probes: RMSProp - Jacobi "
        f"{said(late['rmsprop_jacobi'])}, equilibration - Jacobi "
        f"{said(late['equilibration_jacobi'])}, RMSProp - equilibration "
        f"{said(late['rmsprop_equilibration'])}. Noise-free: {', '.join(texts)} in this order"
    )
    numbers = {pair: asdict(each) for pair, each in late.items()}
    return Judgement("S20", verdict(literal, free), ours, evidence(record), numbers)


def _directions(probes: int, records: Records) -> Judgement:
    """Compare g/D_R with g/D_E: very similar is near, or else nearer than to anything else."""
    near, nearest, texts, numbers = True, True, [], {}
    for record in records:
        found = {pair: over_seeds(series(record, "directions", pair, probes))
                 for pair in ("rmsprop_equilibration", "rmsprop_jacobi", "rmsprop_gradient",
                              "equilibration_gradient")}  # fmt: skip
        ours, *others = found.values()
        near &= ours.high <= NEAR
        nearest &= all(2 * ours.high < other.low for other in others)
        texts.append(
            f"{title(record)}: g/D_R {said(ours)} from g/D_E, {said(others[0])} from g/D_J, "
            f"{said(others[1])} from g; g/D_E {said(others[2])} from g"
        )
        numbers[record["task"]] = {pair: asdict(spread) for pair, spread in found.items()}
    chosen = records[0]["settings"]
    text = (
        f"{'; '.join(texts)} (means over batches, {probes} probes, damping "
        f"{chosen['damping']:g}, RMSProp's eps {chosen['eps']:g}; near: at most {NEAR:g})"
    )
    if nearest and not near:
        text += ". Correction: not near, but less than half as far as from any of the others"
    judged: Verdict = "holds" if near else "does not hold"
    if nearest and not near:
        judged = "holds with a correction"
    return Judgement("S22", judged, text, evidence(*records), numbers)


def _vacuous(records: Records) -> Judgement:
    largest = max(largest_literal(record) for record in records)
    ours = (
        f"the largest of all measured distances between diagonals is {largest:.3f}. Vacuous: the "
        "entries of preconditioners are not negative, so that their cosine is not either"
    )
    judged: Verdict = "holds with a correction" if largest <= 1 else "does not hold"
    return Judgement("S23", judged, ours, evidence(*records), {"largest": largest})
