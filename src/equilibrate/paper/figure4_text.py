"""The text under Figure 4: caption, how it was measured, tables."""

import statistics

from equilibrate.paper.figure import Description, Records, Table
from equilibrate.paper.figure4_judging import over_seeds, said, said_free_at_end
from equilibrate.paper.figure4_reading import (
    PAIRS,
    curvatures,
    ladder_points,
    most,
    noise_shares,
    series,
    title,
)
from equilibrate.paper.records import Data

DIRECTIONS = {
    "rmsprop_equilibration": "g/D_R - g/D_E",
    "rmsprop_jacobi": "g/D_R - g/D_J",
    "equilibration_jacobi": "g/D_E - g/D_J",
    "rmsprop_gradient": "g/D_R - g",
    "equilibration_gradient": "g/D_E - g",
}


def describe(probes: int, records: Records) -> Description:
    """Return caption, notes and tables."""
    names = " and ".join(title(record) for record in records)
    caption = (
        f"Cosine distances between RMSProp's diagonal, the equilibration and the Jacobi diagonal "
        f"while auto-encoders train with RMSProp on {names}. Left: solid by {probes} probes (the "
        "paper: 100); dashed without the estimator's noise; bars are the bounds that it lies "
        "between, alone where they are far apart. Middle: the same distances against the number "
        "of probes; dotted: a Jacobi diagonal that is noise alone. Right: distances between the "
        "updates that the diagonals give."
    )
    tables = [_along(probes, record) for record in records]
    tables += [_against_probes(record) for record in records]
    tables += [_curvature(record) for record in records]
    return Description(caption, _notes(probes, records), tuple(tables))


def _notes(probes: int, records: Records) -> tuple[str, ...]:
    chosen = records[0]["settings"]
    few = [share for record in records for share in noise_shares(record, probes)]
    noise = f"{statistics.median(few):.0%} (median)"
    return (
        f"RMSProp with learning rate {chosen['lr']:g}, decay {chosen['alpha']:g}, eps "
        f"{chosen['eps']:g}, sigmoid code, batch 200, {chosen['seeds']} seed(s), "
        f"{chosen['precision']}. Its diagonal is the root of its own running mean.",
        "Every probe is a vector of signs on a training batch of its own, and serves both "
        "diagonals. The equilibration diagonal is therefore the one that ESGD sees: it contains "
        "the variance of the Hessian between batches (T17). Jacobi's does not.",
        f"At {probes} probes {noise} of Jacobi's squared norm is the estimator's noise. Norms are "
        "repaired exactly, roots to the next order, inner products with |diag H| lie between "
        "bounds that hold for any noise; the value between them assumes entries spread evenly "
        "around zero. CURVES-like images are generated, not the original CURVES.",
        "Update directions: of single batches, means over some of them, with damping "
        f"{chosen['damping']:g} and RMSProp's eps.",
    )


def _along(probes: int, record: Data) -> Table:
    rows = [
        (name, said(over_seeds(series(record, "literal", pair, probes))),
         said(over_seeds(series(record, "literal", pair, probes)[-1:])),
         said_free_at_end(record, pair))
        for pair, name in PAIRS.items()
    ]  # fmt: skip
    rows += [
        (name, said(over_seeds(series(record, "directions", pair, probes))),
         said(over_seeds(series(record, "directions", pair, probes)[-1:])), "-")
        for pair, name in DIRECTIONS.items()
    ]  # fmt: skip
    last = record["data"]["points"][-1]["epoch"]
    header = ("distance", "median over training", f"at epoch {last}", "the same, noise-free")
    return Table(f"{title(record)}, {probes} probes", header, tuple(rows))


def _against_probes(record: Data) -> Table:
    point = ladder_points(record)[-1]
    rows = []
    for found in point["counts"]:
        noise = statistics.median(min(1.0, trial["noise_share"]) for trial in found["trials"])
        distances = [f"{statistics.median(t['literal'][pair] for t in found['trials']):.3f}"
                     for pair in PAIRS]  # fmt: skip
        rows.append((str(found["probes"]), *distances, f"{noise:.0%}"))
    header = ("probes", *PAIRS.values(), "noise in Jacobi")
    name = f"{title(record)}, epoch {point['epoch']}: literal distance against number of probes"
    return Table(f"{name} (up to {most(point)})", header, tuple(rows))


def _curvature(record: Data) -> Table:
    rows = []
    for epoch, trials in curvatures(record):
        middle = [statistics.median(trial[name] for trial in trials)
                  for name in ("least", "greatest", "negative_share")]  # fmt: skip
        rows.append((str(epoch), f"{middle[0]:.3g}", f"{middle[1]:.3g}", f"{middle[2]:.0%}"))
    header = ("epoch", "least curvature", "greatest", "share of negative curvature")
    return Table(f"{title(record)}: extreme curvatures (Lanczos)", header, tuple(rows))
