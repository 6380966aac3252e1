"""What pages of the site take from elsewhere: published results, claims, the commands' help.

A page asks with a comment on a line of its own: `<!-- results: figure3 -->` shows that figure from
the folder `results`, `<!-- results: claims -->` its table of claims, `<!-- results: origin -->`
that of the commands behind it, `<!-- results: wins/cosine -->` a page of the fight,
`<!-- help: compare -->` the help of a command, `<!-- claims: corrections -->` the paper's sentences
that slip, `<!-- file: examples/fsdp2.py -->` a program. What is not published yet is said to be so.
"""

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from equilibrate.cli import make_parser
from equilibrate.paper.statements import STATEMENTS

ROOT = Path(__file__).parent
RESULTS = ROOT / "results"
_ASKED = re.compile(r"^<!-- (results|claims|help|file): ([\w./-]+) -->$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the published figures to the site."""
    for path in sorted([*RESULTS.glob("*.png"), *RESULTS.glob("wins/*/*.png")]):
        name = f"results/{path.relative_to(RESULTS).as_posix()}"
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what a page asks for."""
    fillers: dict[str, Callable[[str], str]] = {
        "results": _published,
        "claims": _corrections,
        "help": _help,
        "file": _file,
    }
    return _ASKED.sub(lambda found: fillers[found[1]](found[2]), markdown)


def _published(name: str) -> str:
    if name in ("claims", "origin"):
        return {"claims": _claims, "origin": _origin}[name]()
    if name.startswith("wins/"):
        return _fight(name)
    if not (RESULTS / f"{name}.png").exists():
        quick = f"equilibrate paper {name} --quick"
        return (
            f"*The full run is not published yet; `{quick}` computes a short version in minutes.*"
        )
    return f"![{name}, from the records of the full run](results/{name}.png)"


def _fight(name: str) -> str:
    path = RESULTS / f"{name}.md"
    if not path.exists():
        return "*No fight is published yet; `equilibrate wins` fights.*"
    _, _, text = path.read_text().partition("\n")  # the page that asks has a title of its own
    return re.sub(r"\]\(([\w./-]+)\)", r"](results/wins/\1)", text)


def _claims() -> str:
    path = RESULTS / "claims.json"
    if not path.exists():
        return "*The table of the full run is not published yet.*"
    rows = [row for row in json.loads(path.read_text())["claims"] if row["claim"][0] == "S"]
    cells = ([row["claim"], row["paper"], row["verdict"], row["ours"]] for row in rows)
    return _table(["", "the paper says", "verdict", "ours"], cells)


def _origin() -> str:
    path = RESULTS / "README.md"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [line for line in lines if line.startswith("|")]
    return "\n".join(rows) or "*Nothing is published yet.*"


def _corrections(_: str) -> str:
    slips = [s for s in STATEMENTS if s.correction and s.theory]
    rows = ([s.claim, s.says, s.correction, s.ours] for s in slips)
    return _table(["", "the paper says", "right", "tests"], rows)


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *([_cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _help(command: str) -> str:
    return f"```text\n{make_parser(command).format_help()}```"


def _file(name: str) -> str:
    return f'```python title="{name}"\n{(ROOT / name).read_text()}```'
