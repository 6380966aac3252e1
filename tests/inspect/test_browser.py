"""The report in a real headless Chromium: every plot drawn, hovering, no error, a phone's width."""

import html
import json
import shutil
import subprocess

import pytest

from equilibrate.cli import main
from tests.inspect.problems import HOSTILE

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on PATH (apt-get install chromium): report not opened"
)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--hide-scrollbars", "--enable-logging=stderr", "--virtual-time-budget=5000",
         "--allow-file-access-from-files"]  # fmt: skip

# Measures the page from inside and leaves the answer in the document's title.
PROBE = """<script>
window.problems = [];
addEventListener("error", e => problems.push(String(e.message)), true);
addEventListener("load", () => {
  const plots = [...document.querySelectorAll("svg.plot")].map(svg => {
    const box = svg.getBoundingClientRect(), marks = [...svg.querySelectorAll(".mark")];
    const letters = svg.querySelector("text").getBoundingClientRect().height;
    return {name: svg.getAttribute("aria-label"), width: box.width, height: box.height,
      marks: marks.length, letters,
      untold: marks.filter(m => !m.querySelector("title")?.textContent).length};
  });
  const hovered = [...document.querySelectorAll("circle, rect.mark")].map(mark => {
    mark.scrollIntoView({block: "center"});
    const box = mark.getBoundingClientRect();
    const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return !!hit && !!hit.closest(".mark");
  });
  document.querySelectorAll("details").forEach(d => d.open = true);
  const cells = [...document.querySelectorAll("td")].map(td => td.scrollWidth - td.clientWidth);
  document.title = "MEASURED" + JSON.stringify({plots, problems, hovered,
    scripts: document.scripts.length, images: document.images.length,
    links: [...document.querySelectorAll("[src],link[href]")].length,
    heading: document.querySelector("h1").innerText,
    verdict: document.querySelector("#verdict").innerText,
    rows: document.querySelectorAll("#spectra tbody tr").length,
    page: document.documentElement.scrollWidth, window: innerWidth,
    overflow: Math.max(...cells)}) + "END";
});
</script>"""
FRAME = '<title>x</title><iframe id="f" src="{}" style="width:{}px;height:800px;border:0"></iframe>'
COPY = """<script>addEventListener("load", () => setTimeout(() => {
  document.title = document.getElementById("f").contentDocument.title; }, 300));</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A quick report of a problem with a hostile name, with a script that measures it."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    status = main(["inspect", "tests.inspect.problems:hostile", "--quick", "--out", str(path)])
    assert status == 0
    path.write_text(path.read_text().replace("<head>", f"<head>{PROBE}"))
    return path


def measured(page, tmp_path, width):
    """Chromium's window is never narrower than 500 pixels: a phone is a frame in a wide window."""
    frame = page.with_name(f"frame-{width}.html")
    frame.write_text(FRAME.format(page.name, width) + COPY)
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}",
               "--window-size=1400,900", "--dump-dom", frame.as_uri()]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    inside = run.stdout.split("MEASURED")[1].split("END</title>")[0]
    return json.loads(html.unescape(inside)), run


@pytest.mark.parametrize("width", [360, 390, 1100])
def test_every_plot_is_drawn_and_told_without_an_error(page, tmp_path, width):
    found, run = measured(page, tmp_path, width)
    assert len(found["plots"]) == 10  # four spectra, two ranges, layers, diagonals, probes, batches
    for plot in found["plots"]:
        assert plot["marks"] >= 3, plot
        assert plot["untold"] == 0, plot
        assert plot["height"] > 100, plot
        assert plot["letters"] >= 9, plot  # readable on a phone
    assert found["problems"] == []
    assert [line for line in run.stderr.splitlines() if ":CONSOLE" in line] == []
    assert all(found["hovered"])
    assert found["rows"] == 8  # four of spectra, four of learning rates
    assert found["verdict"].startswith(("Yes, ", "No, ", "No help "))
    assert found["window"] == width
    assert found["page"] <= width
    assert found["overflow"] <= 0


def test_nothing_is_loaded_and_no_name_becomes_markup(page, tmp_path):
    found, _ = measured(page, tmp_path, 1100)
    assert (found["scripts"], found["images"], found["links"]) == (1, 0, 1)  # probe; empty icon
    assert found["heading"] == f"Curvature of {HOSTILE}"
    assert "http" not in page.read_text().replace("http://www.w3.org", "")
