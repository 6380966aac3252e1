"""Publishing a run: its figures, claims and report beside the packed records behind them.

    python -m equilibrate.paper.publish OUT RESULTS

OUT is the folder of a finished `equilibrate paper`. `equilibrate paper --out RESULTS` then redraws
everything from the packed records.
"""

import argparse
import gzip
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from equilibrate.paper.records import write
from equilibrate.study.journal import PACKED, RECORDS, as_line, read_records
from equilibrate.study.progress import clock

_SHOWN = ("*.pdf", "*.png", "*.svg", "claims.json", "report.html")
_TOLD = ("command", "commit", "device")


def publish(out: Path, results: Path) -> None:
    """Copy what people look at, pack what it rests on, and tell where it comes from."""
    if not (out / "report.html").exists():
        raise FileNotFoundError(
            f"{out} holds no report of a full run; run `equilibrate paper --out {out}` first"
        )
    (results / "records").mkdir(parents=True, exist_ok=True)
    for pattern in _SHOWN:
        for path in sorted(out.glob(pattern)):
            shutil.copyfile(path, results / path.name)
    for path in sorted((out / "records").glob("*.json")):
        record = public(json.loads(path.read_bytes()))
        write(results / "records" / path.name, record)
    for path in sorted((out / "records").glob(f"*/{RECORDS}")):
        folder = results / "records" / path.parent.name
        folder.mkdir(exist_ok=True)
        pack(map(public, read_records(path.parent).values()), folder)
    (results / "README.md").write_text(_origin(results), encoding="utf-8")
    claims = json.loads((results / "claims.json").read_text(encoding="utf-8"))["claims"]
    (results / "claims.md").write_text(claims_page(claims), encoding="utf-8")


def claims_page(claims: Iterable[dict[str, Any]]) -> str:
    """Return the table of claims as a page for people."""
    rows = [["claim", "the paper says", "verdict", "ours"], ["---"] * 4]
    rows += [[row[name] for name in ("claim", "paper", "verdict", "ours")] for row in claims]
    lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    made = "Made from `claims.json`, which has the numbers and what they rest on as well."
    return "\n".join(["# Every checkable sentence of the paper", "", made, "", *lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def pack(records: Iterable[dict[str, Any]], folder: Path) -> None:
    """Write the records of a study packed; without a time stamp, so that the same give the same."""
    lines = map(as_line, records)
    (folder / PACKED).write_bytes(gzip.compress(b"".join(lines), mtime=0))


def public(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without its checksum, its command without the folders of one machine."""
    made, rest = record["provenance"], {k: v for k, v in record.items() if k != "checksum"}
    words = [Path(word).name if word.startswith("/") else word for word in made["command"].split()]
    return {**rest, "provenance": {**made, "command": " ".join(words)}}


def _origin(results: Path) -> str:
    """Return a page that says what was run, on what, by which commit, and how long it took."""
    return "\n".join(
        [
            "# Results of the full run",
            "",
            "Figures, claims ([a table](claims.md), `claims.json`), the report (`report.html`) and",
            "the records behind them. `equilibrate paper --out results` draws everything again",
            "from the records;",
            "`pandas.read_json(path, lines=True)` reads a study's `records.jsonl.gz`.",
            "The fight against other optimizers has a folder of its own, `wins`; the other",
            "folders hold the records of benchmarks that the documentation tells of.",
            "",
            "The time is that from the first start to the last record. Commands on one GPU ran",
            "side by side and shared it.",
            "",
            *origin_table(records_in(results / "records"), _TOLD),
            "",
        ]
    )


def origin_table(records: Iterable[dict[str, Any]], told: Sequence[str]) -> list[str]:
    """Return the lines of a table of runs: what their provenance tells, and the time of each."""
    runs: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for record in records:
        made = record["provenance"]
        cells = tuple(_told(made.get(name)) for name in told)
        end = datetime.fromisoformat(made["time"]).timestamp() if "time" in made else math.nan
        # The seconds of a trial in a stack are its share of them.
        runs.setdefault(cells, []).append((end - made["seconds"] * record.get("together", 1), end))
    return [
        f"| {' | '.join((*told, 'minutes'))} |",
        f"| {' | '.join(['---'] * (len(told) + 1))} |",
        *(
            f"| {' | '.join((f'`{cells[0]}`', *cells[1:], _span(spans)))} |"
            for cells, spans in runs.items()
        ),
    ]


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in sorted(value.items()))
    return str(value or "not recorded")


def _span(spans: list[tuple[float, float]]) -> str:
    # Later records may come from a stack that others had left by then: theirs was a larger share.
    start, _ = min(spans, key=lambda span: span[1])
    seconds = max(end for _, end in spans) - start
    return "not recorded" if math.isnan(seconds) else clock(seconds)


def records_in(records: Path) -> Iterator[dict[str, Any]]:
    """Yield the published records of a folder."""
    for path in sorted(records.glob("*.json")):
        yield json.loads(path.read_bytes())
    for path in sorted(records.glob(f"*/{PACKED}")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            yield json.loads(line)


def main() -> None:
    """Read the two folders from the command line."""
    parser = argparse.ArgumentParser(description="Put a run's figures and records into a folder.")
    parser.add_argument("run", type=Path, help="the folder `equilibrate paper --out` filled")
    parser.add_argument("results", type=Path, help="the folder to publish in")
    given = parser.parse_args()
    publish(given.run, given.results)


if __name__ == "__main__":
    main()
