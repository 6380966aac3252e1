"""The page on momentum with more damping tells what its records say."""

import ast
import re
import statistics
from pathlib import Path

import pytest

from benchmarks import damped_seeds, drift, edge_of_damping, recipe
from benchmarks.strong_damping import found
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS
from equilibrate.study.journal import read_records
from equilibrate.study.outcome import final_error
from equilibrate.study.problems import BUILT_IN

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "strong-damping.md").read_text()
SMALL = {"mnist": "MNIST, 14 x 14", "curves-like": "CURVES-like, 14 x 14"}


def rows_after(text):
    """The cells of the first table behind a text, without its head."""
    after = PAGE[PAGE.index(text) :]
    (table,) = re.findall(r"(?:^\|.*\n)+", after, re.MULTILINE)[:1]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]


def tried(task, method):
    return found(ROOT / "results" / "strong-damping" / task, method)


def test_the_best_of_every_method():
    for name, number, *cells in rows_after("<!-- strong damping: best -->"):
        assert len(tried("mnist", name)) == int(number)
        for task, told, settings in zip(SMALL, cells[::2], cells[1::2], strict=True):
            listed = tried(task, name)
            if told == "-":
                assert not listed
                continue
            own = listed[0]["settings"]
            assert told == f"{final_error(listed[0]):.3g}"
            for part in settings.split(" of each")[0].split(", "):
                key, value = part.split()
                assert own[key] == float(value)
            assert ("each tensor" in settings) == (
                own.get("damping_kind") is None and name == "ESGD"
            )
    dead = [final_error(record) for record in tried("mnist", "Adam")]
    assert len(dead) == 12
    assert min(dead) > 10


def test_the_errors_by_damping():
    dampings = [0.03, 0.1, 0.3, 1.0, 3.0]
    for label, *cells in rows_after("<!-- strong damping: by damping -->"):
        (task,) = (task for task, title in SMALL.items() if title == label)
        long = [r for r in tried(task, "ESGD") if r["settings"]["decay"] == 0.9995]
        absolute = [r for r in long if r["settings"].get("damping_kind") == "absolute"]
        ends = [
            min(final_error(r) for r in absolute if r["settings"]["damping"] == damping)
            for damping in dampings
        ]
        nag = [final_error(r) for r in tried(task, "NAG") if r["settings"]["momentum"] == 0.99]
        assert cells == [f"{end:.3g}" for end in (*ends, min(nag))]


ENDS = {
    "mnist": "MNIST:",
    "mnist-linear": "MNIST, linear code (",
    "curves-like": "CURVES-like:",
    "curves-like-linear": "CURVES-like, linear code (",
}


@pytest.mark.parametrize("task", ENDS)
def test_the_ends_on_the_papers_networks(task):
    records = read_records(ROOT / "results" / "records" / f"damped-{task}").values()
    rows = {row[0]: row[1:] for row in rows_after(f"\n{ENDS[task]}")}
    assert rows.keys() == {MOMENTUM_ARMS[r["method"]].label for r in records}
    for method in {r["method"] for r in records}:
        own = [r for r in records if r["method"] == method]
        best, *others = sorted((r for r in own if r["seed"] == 0), key=final_error)
        ends = sorted(final_error(r) for r in own if r["settings"] == best["settings"])
        early, end, settings, rest = rows[MOMENTUM_ARMS[method].label]
        assert early == f"{min(_at(r, 30_000) for r in (best, *others)):.3g}"
        band = f" [{ends[0]:.3g}, {ends[-1]:.3g}]" if len(ends) > 1 else ""
        assert end == f"{statistics.median(ends):.3g}{band}"
        assert settings.startswith(f"lr {best['settings']['lr']:g}, {_momentum(best)}")
        told = re.findall(r"([\d.]+|died) \(lr ([\de.-]+)", rest)
        ends = [(final_error(r), f"{r['settings']['lr']:g}") for r in others]
        assert told == [("died" if end > 10 else f"{end:.3g}", lr) for end, lr in ends]


def _momentum(record):
    own = record["settings"]
    return f"rising to {own['momentum']:g}" if "momentum" in own else f"beta1 {own['betas'][0]:g}"


def _at(record, updates):
    return _points(record)[updates]


def test_the_settings_with_several_seeds():
    folder = ROOT / "results" / "records" / "damped-curves-like"
    told = rows_after("<!-- damped: seeds -->")
    _, _, *rows = damped_seeds.table(folder)
    assert ["| " + " | ".join(row) + " |" for row in told] == rows


CURVES_LIKE = [
    record
    for study in ("momentum", "falling", "damped")
    for record in read_records(ROOT / "results" / "records" / f"{study}-curves-like").values()
    if record["epochs"] == 7500
]
NAGS = [record for record in CURVES_LIKE if record["method"] == "nag"]


def with_the_floor(momentum):
    """ESGD's runs with the floor, whose momentum rises to this."""
    own = [r for r in CURVES_LIKE if r["method"] == "esgd" and r["settings"].get("mean_floor")]
    damped = [r for r in own if r["settings"].get("damping") == 0.15]
    return [record for record in damped if record["settings"]["momentum"] == momentum]


def test_with_the_floor_esgd_is_below_every_run_of_nag_for_long():
    ours, rivals = (list(map(_points, runs)) for runs in (with_the_floor(0.9975), NAGS))
    assert (len(ours), len(rivals)) == (3, 17)
    shared = [n for n in ours[0] if all(n in rival for rival in rivals)]
    ahead = {n: max(own[n] for own in ours) < min(each[n] for each in rivals) for n in shared}
    assert all(ahead[n] for n in shared if 60_000 <= n <= 260_000)
    middle = statistics.median(own[100_000] for own in ours)
    shares = sorted(middle / rival[100_000] for rival in rivals)
    assert f"with {shares[0]:.2f} to {shares[-1]:.2f} of their errors" in PAGE
    assert not ahead[55_000]
    assert not ahead[265_000]


def test_how_the_winners_on_curves_like_images_compare():
    best = [r for r in NAGS if r["settings"]["momentum"] == 0.9998]
    ours, theirs = ([final_error(r) for r in runs] for runs in (with_the_floor(0.9995), best))
    assert len(ours) == len(theirs) == 3
    told = " ".join(PAGE.split())
    listed = [
        ", ".join(f"{e:.4f}" for e in sorted_[:2]) + f" and {sorted_[2]:.4f}"
        for sorted_ in (ours, theirs)
    ]
    assert f"Its seeds are {listed[0]}, those of NAG's winner {listed[1]}" in told
    less = [1 - f(ours) / f(theirs) for f in (statistics.median, statistics.mean)]
    assert f"{less[0]:.0%} less in the median, {less[1]:.0%} in the mean" in told
    assert [own < other for own, other in zip(ours, theirs, strict=True)] == [True, True, False]
    others = {"rmsprop", "adam", "jacobi"}
    assert max(ours) < min(final_error(r) for r in CURVES_LIKE if r["method"] in others)


def _points(record):
    return dict(zip(record["curve"]["updates"], record["curve"]["error"], strict=True))


def test_the_table_of_the_drift():
    assert "\n".join(drift.table(ROOT / "results" / "drift")) in PAGE


def test_the_errors_over_seeds():
    for name, *cells in rows_after("<!-- strong damping: seeds -->"):
        for task, told in zip(SMALL, cells, strict=True):
            ends = sorted(map(final_error, tried(f"{task}-seeds", name)))
            assert len(ends) == 3
            least, middle, most = (f"{end:.3g}" for end in ends)
            assert told == f"{middle} [{least}, {most}]"


def test_the_recipe_beside_what_was_searched():
    folders = {"the recipe": ("recipe", "ESGD"), "NAG, best of 12": ("seeds", "NAG"),
               "ESGD, best of 34": ("seeds", "ESGD")}  # fmt: skip
    rows = rows_after("<!-- strong damping: recipe -->")
    assert [row[0] for row in rows] == list(folders)
    for label, *cells in rows:
        kind, name = folders[label]
        for task, told in zip(SMALL, cells, strict=True):
            listed = tried(f"{task}-{kind}", name)
            least, middle, most = (f"{end:.3g}" for end in sorted(map(final_error, listed)))
            assert told == f"{middle} [{least}, {most}]"
    for task in SMALL:
        own = [record["settings"] for record in tried(f"{task}-recipe", "ESGD")]
        assert all(recipe.DAMPED.items() <= each.items() for each in own)


def test_the_recipe_with_larger_momenta():
    folder = ROOT / "results" / "strong-damping"
    told = [
        "| " + " | ".join(row) + " |"
        for row in rows_after("<!-- strong damping: recipe changed -->")
    ]
    found = [row for task in SMALL for row in recipe.rows(folder / f"{task}-recipe-changed", task)]
    assert told == found


def test_the_recipe_on_linear_codes():
    folder = ROOT / "results" / "strong-damping"
    told = [
        "| " + " | ".join(row) + " |" for row in rows_after("<!-- strong damping: linear codes -->")
    ]
    names = [f"{task}-linear" for task in SMALL]
    assert told == [
        row for name in names for row in recipe.rows(folder / f"{name}-recipe-changed", name)
    ]


def test_the_recipe_is_that_of_the_code_on_the_page():
    (damped,) = re.findall(r"^damped = (.*)$", PAGE, re.MULTILINE)
    assert ast.literal_eval(damped) == recipe.DAMPED
    assert "lr=edge, decay=0.9995, **damped" in PAGE
    assert "RisingMomentum(optimizer, most=0.99)" in PAGE


def test_the_edge_of_the_recipe():
    found = recipe.edge(BUILT_IN["curves-like-14"](None))
    (lr,) = {record["settings"]["lr"] for record in tried("curves-like-recipe", "ESGD")}
    assert lr == float(f"{found:.3g}")


def test_the_table_of_edges():
    told = [" | ".join(row) for row in rows_after("python -m benchmarks.edge_of_damping")]
    limits = iter(float(row.split(" | ")[2]) for row in told)
    results = ROOT / "results"
    rows = [
        edge_of_damping.row(name, damping, next(limits), results)
        for name in edge_of_damping.NETWORKS
        for damping in edge_of_damping.dampings(name, results)
    ]
    assert list(map(_ends, rows)) == [_ends(f"| {row} |") for row in told]
    again = edge_of_damping.edge(BUILT_IN["curves-like-14"](None), 0.3)
    assert f"| curves-like-14 | ESGD, damping 0.3 | {again:.3g} |" in PAGE


def _ends(row):
    """A row without the shares of the edge, which is rounded there."""
    return re.sub(r"\([\d.]+\)", "", row)
