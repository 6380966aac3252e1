"""The documentation: it builds without a warning, its links lead somewhere, its examples run."""

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from equilibrate.cli import make_parser
from equilibrate.paper.statements import STATEMENTS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
BY_NAME = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    """The fenced blocks of a page: what is said of them, and their text."""
    return [(said.strip(), text) for _, said, text in FENCE.findall(page.read_text())]


@BY_NAME
def test_every_python_block_of_a_page_runs(page, tmp_path, monkeypatch):
    """The blocks of a page run one after the other, in one namespace."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for said, text in blocks(page):
        if said == "python":
            exec(compile(textwrap.dedent(text), str(page), "exec"), namespace)


@BY_NAME
def test_a_block_is_run_or_is_a_file_that_the_tests_run_or_is_no_python(page):
    for said, text in blocks(page):
        assert said in ("python", "sh", "text"), text
    for file in re.findall("^<!-- file: (.*) -->$", page.read_text(), re.MULTILINE):
        assert file.startswith("examples/")  # tests/examples runs them all
        assert (ROOT / file).is_file()


def test_the_search_for_blocks_misses_none():
    for page in PAGES:
        assert 2 * len(blocks(page)) == page.read_text().count("```")


def commands(page):
    """The command lines of a page: in shell blocks, in indented ones, and in the midst of text."""
    text = page.read_text()
    lines = [line for said, block in blocks(page) if said == "sh" for line in block.splitlines()]
    lines += re.findall(r"^ {4,}((?:equilibrate|make|python -m|torchrun|ray) .*)$", text, re.M)
    lines += re.findall(r"`((?:equilibrate [a-z]+|make|python -m) [^`]+)`", text)
    return [line.strip() for line in lines if line.strip()]


def check_equilibrate(words):
    if words[-1:] == ["--help"] or words[:1] == ["--help"]:
        return
    with contextlib.redirect_stderr(io.StringIO()) as complaint:
        try:
            make_parser().parse_args(words)
        except SystemExit:
            pytest.fail(f"equilibrate {shlex.join(words)}: {complaint.getvalue()}")


def check_make(words):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert words[0] in targets


def check_python(words):
    if "-m" not in words:
        assert words[0] == "-c"
        return
    module = words[words.index("-m") + 1]
    path = module.replace(".", "/")
    places = [ROOT / f"{path}.py", ROOT / path, ROOT / "src" / f"{path}.py", ROOT / "src" / path]
    assert any(place.exists() for place in places) or module == "venv", module


def check_pip(words):
    extras = re.findall(r"equilibrate\[(\w+)\]", " ".join(words))
    found = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.M)
    assert set(extras) <= set(found)


CHECKS = {
    "equilibrate": check_equilibrate,
    "make": check_make,
    "python": check_python,
    "torchrun": check_python,
    "pip": check_pip,
    "ray": lambda words: None,  # Ray's own; tests/study/cluster starts clusters through its library
    "bash": lambda words: None,
}


@BY_NAME
def test_every_command_line_is_one_that_the_program_takes(page):
    for line in commands(page):
        program, *words = [
            w for w in shlex.split(line, comments=True) if not re.match("[A-Z_]+=", w)
        ]
        CHECKS[Path(program).name](words)


NAMED = sorted(
    {
        (file, name)
        for page in PAGES
        if page.name != "CONTRIBUTING.md"  # whose test file stands for any
        for file, name in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", page.read_text())
    }
)


@pytest.mark.parametrize(("file", "name"), NAMED, ids=lambda x: x)
def test_every_test_that_a_page_names_is_there(file, name):
    tree = ast.parse((ROOT / file).read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert not name or name in functions


FUNCTIONS = sorted(
    {
        name
        for page in PAGES
        for name in re.findall(
            r"(?:`|::: )((?:equilibrate|torch\.optim)\.[\w.]+)", page.read_text()
        )
    }
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_that_a_page_names_is_there(name):
    words = name.split(".")
    for length in range(len(words), 0, -1):
        try:
            found = import_module(".".join(words[:length]))
        except ModuleNotFoundError:
            continue
        for word in words[length:]:
            found = getattr(found, word)
        return
    pytest.fail(name)


def test_the_mathematics_has_every_equation_with_a_function_and_a_test():
    lines = [line for line in (DOCS / "mathematics.md").read_text().splitlines() if line[:1] == "|"]
    rows = [line for line in lines if "---" not in line and "function and test" not in line]
    for row in rows:
        assert re.search(r"`(equilibrate|torch)\.[\w.]+`.*<br>tests/[\w/]+\.py::\w+ \|$", row), row
    numbers = {row.split("|")[1].strip() for row in rows}
    wanted = {str(number) for number in range(1, 14)} | {"Prop. 1", "Prop. 2", "Prop. 4", "Alg. 1"}
    assert wanted <= numbers


class Links(HTMLParser):
    """What a page of the site leads to, loads and can be led to."""

    def __init__(self, path):
        super().__init__()
        self.leads, self.loads, self.anchors = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors.add(found.get("id") or found.get("name"))
        if tag == "a" and found.get("href"):
            self.leads.append(found["href"])
        elif tag in ("img", "script", "link", "iframe") and (found.get("src") or found.get("href")):
            self.loads.append(found.get("src") or found["href"])


# Built once: these tests stay with one worker.
ON_THE_SITE = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "WARNING" not in run.stderr
    return folder


@ON_THE_SITE
def test_the_site_builds_and_its_links_lead_somewhere(site):
    pages = {path: Links(path) for path in site.rglob("*.html")}
    assert {page.stem for page in DOCS.rglob("*.md")} <= {path.stem for path in pages}
    for path, links in pages.items():
        for link in [*links.leads, *links.loads]:
            parts = urlsplit(link)
            if parts.scheme or path.name == "404.html":  # which is served from anywhere
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), (path.name, link)
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, (path.name, link)


@ON_THE_SITE
def test_the_site_loads_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        assert not [
            load for load in Links(path).loads if urlsplit(load).scheme in ("http", "https")
        ]


@ON_THE_SITE
def test_pages_are_filled_with_what_they_ask_for(site):
    for path in site.rglob("*.html"):
        assert not re.search(r"<!-- (results|claims|help|file): ", path.read_text())
    text = (site / "corrections.html").read_text()
    slips = [s.claim for s in STATEMENTS if s.correction and s.theory]
    assert all(f"<td>{claim}</td>" in text for claim in slips)
    assert "--cluster ADDRESS" in (site / "reference" / "commands.html").read_text()


@BY_NAME
def test_links_between_files_of_the_repository_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not urlsplit(link).scheme:
            assert (page.parent / link).exists(), link
