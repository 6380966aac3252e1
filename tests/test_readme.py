"""What README.md tells in numbers is told by the records or by the page that has them.

Laws over what README says: the count of claims is that of results/claims.json, an interval stands
on a page of the documentation or in the claims, ratios of time and memory are those of the tables.
"""

import json
import re
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CLAIMS = json.loads((ROOT / "results" / "claims.json").read_text())["claims"]
INTERVALS = sorted(set(re.findall(r"\d[\d.]* \[[\d.]+, [\d.]+\]", README)))
APART, FUSED, GRAPHS = "ESGD, probe and backward apart", "ESGD, fused", "ESGD, fused, captured"
TELLING = {"cpu": ("docs/speed.md", "one CPU thread"), "gpu": ("docs/speed-gpu.md", "one H200")}


def rows(page):
    """Return {model: {method: cells}} of the tables of a page of speed."""
    found, model = {}, None
    for line in (ROOT / page).read_text().splitlines():
        if title := re.match(r"\*\*(.+?)\*\*, ([\d.]+) million parameters", line):
            model = f"{title[1]}, {line}"
        elif model and line.startswith("| ") and line.count("|") == 8:
            method, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            found.setdefault(model, {})[method] = cells
    return found


def test_the_verdicts_are_counted_as_the_claims_have_them():
    count = Counter(claim["verdict"] for claim in CLAIMS)
    told = re.search(
        r"of (\d+) sentences (\d+) hold, (\d+) hold with a correction, (\d+) do not hold",
        README,
    )
    verdicts = ("holds", "holds with a correction", "does not hold")
    assert tuple(map(int, told.groups())) == (len(CLAIMS), *(count[name] for name in verdicts))
    assert not count["not yet run"]


@pytest.mark.parametrize("interval", INTERVALS)
def test_an_interval_stands_on_a_page_or_in_a_claim(interval):
    pages = [(ROOT / "docs" / f"{name}.md").read_text() for name in ("results", "strong-damping")]
    told = [re.sub(r"[*\s]+", " ", text) for text in [*pages, json.dumps(CLAIMS)]]
    short = re.sub(r"\b0\.30\b", "0.3", interval)  # claims are printed with two digits at most
    assert any(interval in text or short in text for text in told)


def test_there_are_intervals():
    assert len(INTERVALS) >= 6


@pytest.mark.parametrize("device", TELLING)
def test_iterations_are_told_as_the_tables_have_them(device):
    page, row = TELLING[device]
    tables = rows(page).values()
    told = re.search(rf"^\| {row} \|(.*)\|$", README, re.M)[1].strip("| ").split("|")
    methods = (APART, FUSED, GRAPHS)[: len(told)]
    for text, method in zip(told, methods, strict=True):
        ratios = [Decimal(table[method][1]) for table in tables if method in table]
        ends = [str(end(ratios).quantize(Decimal("0.01"), ROUND_HALF_UP)) for end in (min, max)]
        assert text.strip() == " to ".join(ends), method


def test_peaks_of_memory_are_told_as_the_table_has_them():
    tables = {name.split(",")[0]: table for name, table in rows("docs/speed-gpu.md").items()}

    def peak(model, method):
        return float(tables[model][method][-1]) / float(tables[model]["AdamW, fused"][-1])

    text = " ".join(README.split())
    assert f"the peak was {peak('transformer', FUSED):.1f} times AdamW's" in text
    small = [peak(model, FUSED) for model in ("ResNet-18", "sine field")]
    assert "{:.1f} and {:.1f} times on a ResNet-18 and a sine field".format(*small) in text
    assert "level with AdamW's on these three [where a quarter" in text
    for model in ("transformer", "ResNet-18", "sine field"):
        assert 0.99 < peak(model, "ESGD, fused, probing a quarter") < 1.01
