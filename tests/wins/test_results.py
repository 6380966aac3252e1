"""What is published in results/wins, and said about it in the docs, follows from the records."""

import re
import shutil
from pathlib import Path

import pytest

from equilibrate.wins.publish import redraw

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "wins"
PAGES = sorted(path for path in RESULTS.glob("*.md"))


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory):
    """The pages once more, from a copy of the records alone."""
    out = tmp_path_factory.mktemp("redrawn")
    for terms in RESULTS.glob("*/terms.json"):
        (out / terms.parent.name).mkdir()
        shutil.copyfile(terms, out / terms.parent.name / terms.name)
        shutil.copytree(terms.parent / "records", out / terms.parent.name / "records")
    redraw(out, figures=False)
    return out


def test_there_are_two_pages_and_an_origin():
    assert [path.name for path in PAGES] == ["README.md", "cosine.md", "ramp.md"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_is_the_one_that_the_records_give(redrawn, path):
    assert path.read_bytes() == (redrawn / path.name).read_bytes()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_everything_that_a_page_shows_is_published(path):
    shown = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
    assert shown
    assert [name for name in shown if not (RESULTS / name).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_no_page_names_a_folder_of_one_machine(path):
    assert not re.search(r"[\"'` ]/(?:home|root|tmp|work|Users)/", path.read_text())


def test_what_is_published_stays_small():
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) < 4e6


def _rows(text, header):
    """The rows of every table whose header begins so."""
    found, inside = [], False
    for line in text.splitlines():
        inside = line.startswith(header) or (inside and line.startswith("|"))
        if inside and not line.startswith((header, "| ---")):
            found.append(line)
    return found


def test_every_verdict_of_the_docs_is_one_of_a_page():
    told = _rows((ROOT / "docs" / "fight.md").read_text(), "| task | ours |")
    known = [row for path in PAGES for row in _rows(path.read_text(), "| task | ours |")]
    assert len(told) >= 8
    assert [row for row in told if row not in known] == []


def test_with_the_learning_rate_as_shipped_nothing_diverges():
    for path in PAGES[1:]:
        (found,) = re.findall(r"as shipped, [\d.]+: (\d+) of \d+ finals", path.read_text())
        assert found == "0"
