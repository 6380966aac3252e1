"""What the page on results tells of the long runs of Figure 3 follows from their records."""

import re
from pathlib import Path
from statistics import median

import pytest

from equilibrate.study.journal import read_records

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "results.md").read_text().split())
ALL = list(read_records(ROOT / "results" / "records" / "figure3-mnist").values())
LONG = {(r["method"], r["seed"]): r["curve"] for r in ALL if r["epochs"] == 2500}
SEEDS = (0, 1)
NAMES = {"jacobi": "Jacobi", "esgd-warm": "Algorithm 1 with a warm-up", "esgd": "ESGD as shipped",
         "rmsprop": "RMSProp", "sgd": "SGD"}  # fmt: skip


def error_at(curve, epoch):
    return dict(zip(curve["epoch"], curve["error"], strict=True))[epoch]


def epochs_to(curve, target):
    points = zip(curve["epoch"], curve["error"], strict=True)
    return next(epoch for epoch, error in points if error <= target)


def factors(arm):
    """How many times fewer epochs than SGD an arm needs, by seed and by what SGD's end is."""
    ends = {seed: LONG["sgd", seed]["error"][-10:] for seed in SEEDS}
    targets = [(s, end) for s, e in ends.items() for end in (e[-1], median(e), min(e))]
    return [epochs_to(LONG["sgd", s], t) / epochs_to(LONG[arm, s], t) for s, t in targets]


@pytest.mark.parametrize("arm", NAMES)
def test_both_long_seeds_where_both_were(arm):
    first, second = (f"{error_at(LONG[arm, seed], 2350):.2f}" for seed in SEEDS)
    assert f"{first} and {second} ({NAMES[arm]})" in PAGE


def test_how_much_faster_than_sgd_and_how_far_that_depends_on_the_end():
    told = re.search(r"ESGD's factor is (\S+) to ([\d.]+), .* warm-up (\S+) to ([\d.]+)\.\)", PAGE)
    found = [bound(factors(arm)) for arm in ("esgd", "esgd-warm") for bound in (min, max)]
    assert list(told.groups()) == [f"{number:.1f}" for number in found]


def test_two_runs_of_one_seed_differ():
    for arm, name in (("rmsprop", "RMSProp has"), ("esgd", "ESGD as shipped")):
        (short,) = (r for r in ALL if (r["method"], r["seed"], r["epochs"]) == (arm, 1, 1000))
        ends = error_at(LONG[arm, 1], 1000), short["curve"]["error"][-1]
        assert f"{name} {ends[0]:.2f} and {ends[1]:.2f}" in PAGE
