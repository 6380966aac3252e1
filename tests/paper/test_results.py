"""What is published in results/ follows from the records that lie beside it."""

import filecmp
import gzip
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from equilibrate.paper import momentum, run
from equilibrate.paper.figures import FIGURES
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS, momentum_arms
from equilibrate.paper.publish import claims_page
from equilibrate.paper.records import Store
from equilibrate.study.journal import read_records
from equilibrate.study.progress import Progress

RESULTS = Path(__file__).parents[2] / "results"
PUBLISHED = (
    "figure1",
    "figure2",
    "figure3",
    "figure4",
    "robustness",
    "momentum",
    "falling",
    "damped",
)
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory):
    """Everything drawn and judged again, from a copy of the records alone."""
    out = tmp_path_factory.mktemp("redrawn")
    shutil.copytree(RESULTS / "records", out / "records")
    recorded = [n for n, f in FIGURES.items() if run._recorded(f, out, quick=False) is not None]
    assert set(recorded) >= set(PUBLISHED)
    simple = [name for name in recorded if not FIGURES[name].needs_gpu]
    run.run(simple, out, quick=False, command="equilibrate paper")  # the others join by themselves
    return out


def _numbers(path):
    """The numbers of a drawing: dates and names made from hashes are no part of it."""
    text = re.sub(r"<metadata>.*?</metadata>", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r"url\(#\w+\)|(?:id|href)=\"[^\"]*\"", "", text)
    return [float(number) for number in NUMBER.findall(text)]


@pytest.mark.slow
def test_the_claims_are_those_that_the_records_give(redrawn):
    published, again = (json.loads((f / "claims.json").read_text()) for f in (RESULTS, redrawn))
    assert published["claims"] == again["claims"]


def test_the_page_of_claims_is_made_from_them():
    published = json.loads((RESULTS / "claims.json").read_text())["claims"]
    page = (RESULTS / "claims.md").read_text()
    assert page == claims_page(published)
    assert page.count("\n| S") + page.count("\n| T") == len(published)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_figures_are_those_that_the_records_give(redrawn, name):
    """To a hundredth of a point: the last bits of a sum may differ between machines."""
    published, again = (_numbers(folder / f"{name}.svg") for folder in (RESULTS, redrawn))
    assert len(published) > 100
    assert published == pytest.approx(again, abs=0.01)


@pytest.mark.slow
def test_nothing_published_names_a_folder_of_one_machine():
    for path in RESULTS.rglob("*"):
        if path.suffix in (".json", ".md", ".html", ".gz"):
            raw = path.read_bytes()
            text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
            assert not re.search(r"[\"' ]/(?:home|root|tmp|work|Users)/", text), path


def test_every_file_that_the_report_names_is_published():
    named = re.findall(r'href="([^"#:]+)"', (RESULTS / "report.html").read_text())
    assert len(named) >= 10
    assert [name for name in named if not (RESULTS / name).exists()] == []


def _rows_under(page, title):
    """The rows of the table that follows a line."""
    after = page[page.index(title) + 1 :]
    rows = [line for line in after[: after.index("", 2)] if line.startswith("| ")][2:]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


@pytest.mark.parametrize(("task", "title"), [("mnist", "MNIST:"), ("curves-like", "CURVES-like:")])
@pytest.mark.parametrize(
    ("study", "section"),
    [("momentum", "### What it gave"), ("falling", "### With a learning rate that falls")],
)
def test_the_page_on_momentum_tells_what_the_studies_gave(study, section, task, title):
    chosen = momentum.settings(quick=False, study=study)
    only = replace(chosen, tasks=tuple(t for t in chosen.tasks if t.problem == task))
    store = Store(RESULTS / "records", frozen=True)
    records = momentum.compute(only, store, Progress("", 1.0, stream=None))
    (table,) = momentum.describe(only, records).tables
    searched = [arm.best["final_error"] for arm in momentum_arms(records, task).values()]
    expected = [
        [label, early, f"{at_rung:.3g}", *([] if before == "-" else [before]), end.split()[0]]
        for (label, _, _, early, before, end, *_), at_rung in zip(table.rows, searched, strict=True)
    ]
    page = (RESULTS.parent / "docs" / "momentum.md").read_text()
    rows = _rows_under(page[page.index(section) :].splitlines(), title)
    assert len(expected) == 5
    assert [row[: len(expected[0])] for row in rows] == expected


def test_the_page_on_momentum_tells_how_the_winners_of_all_rounds_ended():
    page = (RESULTS.parent / "docs" / "momentum.md").read_text()
    rows = _rows_under(page.splitlines(), "as long, so all ends at seed 0 are known:")
    told = [[cell.replace("the same", "").strip(" /").split(" / ") for cell in r[1:]] for r in rows]
    ended: dict[str, list[list[str]]] = {name: [] for name in MOMENTUM_ARMS}
    for task, epochs in (("mnist", 2500), ("curves-like", 7500)):
        found = read_records(RESULTS / "records" / f"falling-{task}").values()
        for name, cells in ended.items():
            all_seeds = [r for r in found if r["method"] == name and r["epochs"] == epochs]
            own = [record for record in all_seeds if record["seed"] == 0]
            in_order = sorted(own, key=lambda record: record["provenance"]["time"])
            cells.append([f"{record['final_error']:.3g}" for record in in_order])
    assert told == list(ended.values())


@pytest.mark.parametrize("name", ["falling", "damped"])
def test_the_picture_on_the_page_is_the_one_published(name):
    page = RESULTS.parent / "docs" / f"{name}.png"
    assert filecmp.cmp(page, RESULTS / f"{name}.png", shallow=False)
