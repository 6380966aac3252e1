"""The tables of docs/speed.md, drawn from records alone.

python -m benchmarks.table docs/speed-cpu.jsonl
"""

import argparse
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import ratio, records

Record = dict[str, Any]


def latest(found: list[Record], *keys: str) -> list[Record]:
    """Keep the last record of each kind."""
    return list({tuple(r[k] for k in keys): r for r in found}.values())


def against(found: list[Record]) -> str:
    """Return one Markdown table for each model: every method's iteration over SGD's."""
    found = latest([r for r in found if r["benchmark"] == "against"], "model", "kind", "method")
    tables = []
    for model in dict.fromkeys(r["model"] for r in found):
        rows = [r for r in found if r["model"] == model]
        tables.append(_caption(rows) + "\n\n" + _against_one(rows))
    return "\n\n".join(tables)


def _caption(rows: list[Record]) -> str:
    first = next((r for r in rows if "times" in r), rows[0])
    size = f", {first['parameters'] / 1e6:.1f} million parameters" if "parameters" in first else ""
    small = ", the small version" if first["small"] else ""
    machine = first["device"] if first["kind"] == "cuda" else f"{first['threads']} CPU threads"
    clock = ", processor time" if first.get("clock") == "process" else ""
    return f"**{first['model']}**{size}{small}; {machine}{clock}, torch {first['torch']}"


def _against_one(rows: list[Record]) -> str:
    lines = [
        "| method | iteration, ms | over SGD | quartiles | rounds | state, bytes a parameter "
        "| peak memory, MB |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        if "error" in r:
            lines.append(f"| {r['method']} | not measured: {r['error']} | | | | | |")
            continue
        middle, low, high = ratio(r["times"], r["base"])
        memory = f"{r['peak'] / 1e6:.0f}" if r["peak"] else "-"
        lines.append(
            f"| {r['method']} | {median(r['times']) * 1e3:.3g} | {middle:.3f} | "
            f"{low:.3f} to {high:.3f} | {len(r['times'])} | {r['state']:.1f} | {memory} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", nargs="+", type=Path)
    print(against(records(*parser.parse_args().records)))


if __name__ == "__main__":
    main()
