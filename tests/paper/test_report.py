"""The report as text: self-contained, escaped, labelled; figures beside it."""

import re
from dataclasses import dataclass, replace

import pytest

from equilibrate.paper import figure1, html, report
from equilibrate.paper.records import Store
from equilibrate.study.progress import Progress
from tests.paper.shrunken import HOSTILE


@dataclass(frozen=True)
class Hostile(figure1.Settings):
    remark: str = HOSTILE


def write(out, *, quick=False):
    settings = Hostile(starts=10)
    records = figure1.compute(settings, Store(out / "records"), Progress("", 1, stream=None))
    figure = replace(figure1.FIGURE, title=f"Title {HOSTILE}")
    result = report.Result(figure, settings, records)
    return report.write([result], out, quick=quick, command=f"equilibrate {HOSTILE}").read_text()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write(tmp_path_factory.mktemp("out"))


def test_text_from_settings_title_and_command_is_escaped(page):
    assert "<script" not in page
    assert "<img" not in page
    assert page.count("&lt;script&gt;") == 3


def test_nothing_is_loaded_from_elsewhere(page):
    fetched = re.findall(r'(?:src|href)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    assert [u for u in fetched if not u.startswith(("#", "data:")) and "/" in u] == []


def test_ids_are_unique_and_every_reference_is_found(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    used = re.findall(r'href="#([^"]+)"', page) + re.findall(r"url\(#([^)]+)\)", page)
    assert set(used) <= set(ids)


def test_it_says_settings_seed_versions_and_time(page):
    for word in ("seed 0", "torch 2", "python 3", "computed in", "curvatures = [20.0, -0.8]"):
        assert word in page


def test_quick_is_labelled_everywhere(tmp_path):
    page = write(tmp_path, quick=True)
    assert "(quick)</title>" in page
    assert "(quick)</h2>" in page
    assert 'class="quick"' in page
    assert "<!-- quick -->" in (tmp_path / "figure1-quick.svg").read_text()
    assert {"report-quick.html", "claims-quick.json", "figure1-quick.png", "figure1-quick.pdf"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_a_full_report_is_not_labelled_quick(page):
    assert 'class="quick"' not in page
    assert "<!-- quick -->" not in page
    assert "(quick)" not in page


def test_a_table_s_cells_are_escaped_and_carry_their_column():
    assert html.table(("a&b",), [("<x>",)]).count("a&amp;b") == 2
    assert "&lt;x&gt;" in html.table(("a",), [("<x>",)])
