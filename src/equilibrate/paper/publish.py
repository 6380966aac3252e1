"""Publishing a run: its figures, claims and report beside the packed records behind them.

    python -m equilibrate.paper.publish OUT RESULTS

OUT is the folder of a finished `equilibrate paper`. `equilibrate paper --out RESULTS` then redraws
everything from the packed records.
"""

import gzip
import json
import math
import shutil
import sys
from collections.abc import Iterator
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
        record = _public(json.loads(path.read_bytes()))
        write(results / "records" / path.name, record)
    for path in sorted((out / "records").glob(f"*/{RECORDS}")):
        folder = results / "records" / path.parent.name
        folder.mkdir(exist_ok=True)
        lines = [as_line(_public(record)) for record in read_records(path.parent).values()]
        # Without a time stamp: the same records give the same file.
        (folder / PACKED).write_bytes(gzip.compress(b"".join(lines), mtime=0))
    (results / "README.md").write_text(_origin(results))


def _public(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without its checksum, its command without the folders of one machine."""
    made, rest = record["provenance"], {k: v for k, v in record.items() if k != "checksum"}
    words = [Path(word).name if word.startswith("/") else word for word in made["command"].split()]
    return {**rest, "provenance": {**made, "command": " ".join(words)}}


def _origin(results: Path) -> str:
    """Return a page that says what was run, on what, by which commit, and how long it took."""
    runs: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for record in _records(results / "records"):
        made = record["provenance"]
        told = tuple(str(made.get(name) or "not recorded") for name in _TOLD)
        end = datetime.fromisoformat(made["time"]).timestamp() if "time" in made else math.nan
        # The seconds of a trial in a stack are its share of them.
        runs.setdefault(told, []).append((end - made["seconds"] * record.get("together", 1), end))
    rows = [
        f"| {' | '.join((f'`{told[0]}`', *told[1:], _span(spans)))} |"
        for told, spans in runs.items()
    ]
    return "\n".join(
        [
            "# Results of the full run",
            "",
            "Figures, claims (`claims.json`), the report (`report.html`) and the records behind",
            "them. `equilibrate paper --out results` draws everything again from the records;",
            "`pandas.read_json(path, lines=True)` reads a study's `records.jsonl.gz`.",
            "",
            "The time is that from the first start to the last record. Commands on one GPU ran",
            "side by side and shared it.",
            "",
            f"| {' | '.join((*_TOLD, 'minutes'))} |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _span(spans: list[tuple[float, float]]) -> str:
    # Later records may come from a stack that others had left by then: theirs was a larger share.
    start, _ = min(spans, key=lambda span: span[1])
    seconds = max(end for _, end in spans) - start
    return "not recorded" if math.isnan(seconds) else clock(seconds)


def _records(records: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(records.glob("*.json")):
        yield json.loads(path.read_bytes())
    for path in sorted(records.glob(f"*/{PACKED}")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            yield json.loads(line)


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]))
