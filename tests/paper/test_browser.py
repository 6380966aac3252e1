"""The report in a real headless Chromium: drawn, without errors, readable on a phone, printable."""

import json
import shutil
import subprocess
from dataclasses import dataclass, replace

import pytest

from equilibrate.paper import figure1, figures, report
from equilibrate.paper.records import Store
from equilibrate.paper.statements import STATEMENTS
from equilibrate.study.progress import Progress
from tests.paper.shrunken import HOSTILE, shrink

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on PATH (apt-get install chromium): report not opened"
)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", "--hide-scrollbars"]  # fmt: skip

# Measures the page from inside and leaves the answer in the document's title.
PROBE = """<script>
window.problems = [];
addEventListener("error", e => problems.push(String(e.message)), true);
addEventListener("load", () => {
  const boxes = [...document.querySelectorAll("svg.figure")].map(svg => {
    const box = svg.getBoundingClientRect();
    return [box.width, box.height, svg.querySelectorAll("path").length];
  });
  const cells = [...document.querySelectorAll("td")].map(td => td.scrollWidth - td.clientWidth);
  document.title = "MEASURED" + JSON.stringify({boxes, problems,
    rows: [...document.querySelectorAll("table.claims tbody tr")].length,
    ids: [...document.querySelectorAll("table.claims tbody td:first-child")].map(x => x.innerText),
    scripts: document.scripts.length, images: document.images.length,
    page: document.documentElement.scrollWidth, window: innerWidth,
    overflow: Math.max(...cells), font: getComputedStyle(document.body).fontSize}) + "END";
});
</script>"""


@dataclass(frozen=True)
class Hostile(figure1.Settings):
    remark: str = HOSTILE


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A small report of every figure, with a script that measures it."""
    out = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "FIGURES", dict(figures.FIGURES))
        shrink()
        figures.FIGURES["figure1"] = replace(
            figures.FIGURES["figure1"], settings=lambda quick: Hostile(starts=20)
        )
        results = [_result(figure, out) for figure in figures.FIGURES.values()]
    path = report.write(results, out, quick=True, command="equilibrate paper")
    path.write_text(path.read_text().replace("<head>", f"<head>{PROBE}"))
    return path


def _result(figure, out):
    settings = figure.settings(True)
    progress = Progress(figure.name, figure.units(settings), stream=None)
    return report.Result(figure, settings, figure.compute(settings, Store(out / "r"), progress))


def chromium(page, tmp_path, *arguments):
    profile = tmp_path / "profile"
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *arguments, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def measured(page, tmp_path, width):
    run = chromium(page, tmp_path, f"--window-size={width},900", "--enable-logging=stderr",
                   "--virtual-time-budget=5000", "--dump-dom")  # fmt: skip
    inside = run.stdout.split("MEASURED")[-1].split("END</title>")[0]
    # Text of a title comes back escaped.
    return json.loads(inside.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")), run


@pytest.mark.parametrize("width", [1100, 500])
def test_the_page_is_drawn_without_errors(page, tmp_path, width):
    found, run = measured(page, tmp_path, width)
    assert len(found["boxes"]) == len(figures.FIGURES)
    assert all(w > 300 and h > 100 and paths > 20 for w, h, paths in found["boxes"])
    assert found["problems"] == []
    assert [line for line in run.stderr.splitlines() if ":CONSOLE" in line] == []
    assert found["ids"] == [statement.claim for statement in STATEMENTS]
    assert (found["scripts"], found["images"]) == (1, 0)  # the probe alone: nothing injected


# Chromium's window is never narrower than 500 pixels, so that a phone is a frame in a wide window.
FRAME = '<title>x</title><iframe id="f" src="{}" style="width:{}px;height:800px;border:0"></iframe>'
COPY = """<script>addEventListener("load", () => setTimeout(() => {
  document.title = document.getElementById("f").contentDocument.title; }, 200));</script>"""


@pytest.mark.parametrize("width", [360, 412])
def test_a_phone_shows_it_without_scrolling_sideways(page, tmp_path, width):
    frame = page.with_name(f"phone-{width}.html")
    frame.write_text(FRAME.format(page.name, width) + COPY)
    run = chromium(frame, tmp_path, "--allow-file-access-from-files", "--dump-dom",
                   "--virtual-time-budget=8000")  # fmt: skip
    found = json.loads(run.stdout.split("MEASURED")[1].split("END</title>")[0])
    assert found["window"] == width
    assert found["page"] <= width
    assert found["overflow"] <= 0
    assert float(found["font"].removesuffix("px")) >= 14


def test_it_prints(page, tmp_path):
    path = tmp_path / "report.pdf"
    chromium(page, tmp_path, f"--print-to-pdf={path}", "--no-pdf-header-footer")
    content = path.read_bytes()
    assert content.startswith(b"%PDF")
    pages = content.count(b"/Type /Page\n") + content.count(b"/Type /Page ")
    assert pages >= 2
    assert b"%%EOF" in content[-1024:]
