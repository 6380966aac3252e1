"""Pieces of the report's HTML; every text passes through `text`, which escapes it."""

import html
import re
from collections.abc import Iterable, Sequence

CLASSES = {
    "holds": "yes",
    "holds with a correction": "corrected",
    "does not hold": "no",
    "not yet run": "open",
}


def text(value: object) -> str:
    """Return a value as text that cannot be taken for markup, in an attribute neither.

    Example:
        >>> text('<b title="x">')
        '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(str(value), quote=True)


def table(header: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "") -> str:
    """Return a table whose cells know their column's name: on a phone each row becomes a card."""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in header)
    body = "\n".join(_line(header, row) for row in rows)
    return (
        f'<table class="{text(kind)}"><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>'
    )


def _line(header: Sequence[str], row: Sequence[object]) -> str:
    cells = [_cell(name, value) for name, value in zip(header, row, strict=True)]
    return f"<tr>{''.join(cells)}</tr>"


def _cell(name: str, value: object) -> str:
    mark = CLASSES.get(str(value)) if name == "verdict" else None
    inner = f'<span class="verdict {mark}">{text(value)}</span>' if mark else text(value)
    return f'<td data-label="{text(name)}"><div>{inner or "-"}</div></td>'


def inline_svg(svg: str, name: str, label: str) -> str:
    """Return matplotlib's SVG for use inside a page: own ids, a label, the page's width."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    head, rest = body.split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    return f'{head} class="figure" role="img" aria-label="{text(label)}">{rest}'


STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 68rem; margin: 0 auto; padding: 1rem 1.2rem 4rem; overflow-wrap: break-word; }
h1 { line-height: 1.2; margin-bottom: .2rem; } h2 { margin-top: 2.6rem; }
.quick { background: #F0E442; border: 1px solid #8a7f00; padding: .5rem .8rem; }
figure { margin: 1rem 0; } .frame { overflow-x: auto; }
svg.figure { width: 100%; height: auto; display: block; }
figcaption, .note { color: #333; font-size: .95rem; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; margin: .8rem 0; }
caption { text-align: left; font-weight: 600; }
th, td { text-align: left; vertical-align: top; padding: .35rem .5rem;
  border-bottom: 1px solid #d0d0d0; }
th { border-bottom: 2px solid #555; }
.verdict { font-weight: 600; padding: 0 .35rem; border-left: .35rem solid; }
.yes { border-color: #009E73; } .corrected { border-color: #E69F00; }
.no { border-color: #D55E00; } .open { border-color: #999; color: #555; font-weight: 400; }
table.claims td:last-child { min-width: 8rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere;
  background: #f5f5f5; padding: .6rem; font-size: .82rem; }
@media (max-width: 54rem) {
  body { overflow-wrap: anywhere; }
  svg.figure { min-width: 38rem; }  /* the figure scrolls, the page not */
  thead { display: none; }
  table, tbody, tr, td { display: block; width: 100%; }
  tr { border: 1px solid #bbb; margin: 0 0 .8rem; padding: .2rem 0; }
  td { display: grid; grid-template-columns: 7.5rem minmax(0, 1fr); border-bottom: 0;
    padding: .15rem .5rem; }
  td::before { content: attr(data-label); color: #555; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  figure, tr { break-inside: avoid; } h2 { break-after: avoid; } table { font-size: 8pt; }
}
"""


def page(title: str, body: Iterable[str]) -> str:
    """Return a whole document that loads nothing from anywhere."""
    inner = "\n".join(body)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n"
        f"<body>\n{inner}\n</body></html>\n"
    )
