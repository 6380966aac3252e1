"""The report: one HTML file with every figure, the claims table and what it all rests on."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from equilibrate.paper import claims, html
from equilibrate.paper.drawing import save
from equilibrate.paper.figure import Description, Figure, Records
from equilibrate.study.progress import clock
from equilibrate.study.provenance import versions

TITLE = "Equilibrated adaptive learning rates: the paper, recomputed"
_QUICK = (
    "Quick run: fewer problems and shorter training than the full run, to see that everything "
    "works. Its verdicts are provisional; run `equilibrate paper` without --quick for the figures."
)


@dataclass(frozen=True)
class Result:
    """A figure with its settings and records."""

    figure: Figure
    settings: Any
    records: Records


def write(results: Sequence[Result], out: Path, *, quick: bool, command: str) -> Path:
    """Draw every figure, judge every claim, write the report; return its path."""
    out.mkdir(parents=True, exist_ok=True)
    suffix = "-quick" if quick else ""
    records = {result.figure.name: result.records for result in results}
    judged = [j for r in results for j in r.figure.claims(r.settings, r.records)]
    judged += [j for r in results for j in r.figure.joint(r.settings, r.records, records)]
    rows = claims.table(judged)
    claims.write(rows, out / f"claims{suffix}.json", quick=quick)
    body = [*_head(quick), *(_section(r, out, suffix, quick) for r in results)]
    body += [_claims(rows), _origin(results, command)]
    path = out / f"report{suffix}.html"
    partial = path.with_suffix(".partial")
    page = html.page(TITLE + (" (quick)" if quick else ""), body)
    partial.write_text(page, encoding="utf-8")
    os.replace(partial, path)
    return path


def _head(quick: bool) -> list[str]:
    about = (
        "Figures and claims of Dauphin, de Vries and Bengio, Equilibrated adaptive learning rates "
        "for non-convex optimization (NIPS 2015), recomputed by the library equilibrate."
    )
    head = [f"<h1>{html.text(TITLE)}</h1>", f"<p>{html.text(about)}</p>"]
    return [*head, f'<p class="quick">{html.text(_QUICK)}</p>'] if quick else head


def _section(result: Result, out: Path, suffix: str, quick: bool) -> str:
    figure = result.figure
    described = figure.describe(result.settings, result.records)
    picture = figure.draw(result.settings, result.records)
    if quick:  # pictures travel without their page
        picture.text(0.998, 0.998, "quick", ha="right", va="top", color="0.4", size=6)
    files = save(picture, out / f"{figure.name}{suffix}")
    svg = html.inline_svg(files["svg"].read_text(encoding="utf-8"), figure.name, described.caption)
    title = figure.title + (" (quick)" if quick else "")
    links = ", ".join(
        f'<a href="{html.text(files[k].name)}">{k.upper()}</a>' for k in ("pdf", "png")
    )
    return "\n".join(
        [
            f'<section id="{figure.name}"><h2>{html.text(title)}</h2>',
            f'<figure><div class="frame">{svg}</div>',
            f"<figcaption>{html.text(described.caption)} ({links})</figcaption></figure>",
            *_below(described),
            _settings(result),
            "</section>",
        ]
    )


def _below(described: Description) -> list[str]:
    found = []
    for table in described.tables:
        found.append(f"<h3>{html.text(table.title)}</h3>{html.table(table.header, table.rows)}")
    return found + [f'<p class="note">{html.text(note)}</p>' for note in described.notes]


def _settings(result: Result) -> str:
    spent = sum(record["provenance"]["seconds"] for record in result.records)
    threads = sorted({record["provenance"]["threads"] for record in result.records})
    devices = sorted({str(record["provenance"]["device"]) for record in result.records})
    first = getattr(result.settings, "seed", 0)
    fields = asdict(result.settings).items()
    told = "\n".join(f"{name} = {json.dumps(v, ensure_ascii=False)}" for name, v in fields)
    summary = (
        f"Settings (seeds from {first}); {len(result.records)} records, computed in "
        f"{clock(spent)} min on {', '.join(devices)} with {'/'.join(map(str, threads))} thread(s)"
    )
    head = f"<details open><summary>{html.text(summary)}</summary>"
    return f"{head}<pre>{html.text(told)}</pre></details>"


def _claims(rows: Sequence[claims.Row]) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    header = ("id", "the paper says", "right statement", "ours", "evidence", "verdict")
    cells = [(r.claim, r.paper, r.correction, r.ours, r.evidence, r.verdict) for r in rows]
    return (
        f'<section id="claims"><h2>Claims</h2><p>{html.text(told)}. Rows T are theory, held by '
        "tests on matrices; rows S are studies, held by records.</p>"
        f"{html.table(header, cells, 'claims')}</section>"
    )


def _origin(results: Sequence[Result], command: str) -> str:
    made = {tuple(r["provenance"]["versions"].items()) for x in results for r in x.records}
    rows = [("command", command), ("report written with", _told(versions()))]
    rows += [("records computed with", _told(dict(each))) for each in sorted(made)]
    return f"<section><h2>Origin</h2>{html.table(('what', 'value'), rows)}</section>"


def _told(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())
