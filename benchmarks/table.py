"""The tables of docs/speed.md and docs/speed-gpu.md, drawn from records alone.

    python -m benchmarks.table docs/speed-cpu.jsonl docs/speed-gpu.jsonl

A table for each kind of record that is there: the update alone, the cost of a probe, every method
beside the others, and the overhead by size and frequency.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.frequency import FREQUENCIES, overhead
from benchmarks.measure import ratio, records

Record = dict[str, Any]


def latest(found: list[Record], *keys: str) -> list[Record]:
    """Keep the last record of each kind."""
    return list({tuple(r[k] for k in keys): r for r in found}.values())


def against(found: list[Record]) -> str:
    """Return one Markdown table for each model and size: every method's iteration over SGD's."""
    kept = [r for r in found if r["benchmark"] == "against"]
    kept = latest(kept, "model", "small", "kind", "method")
    tables = []
    for model in dict.fromkeys((r["model"], r["small"]) for r in kept):
        rows = [r for r in kept if (r["model"], r["small"]) == model]
        tables.append(_caption(rows) + "\n\n" + _against_one(rows))
    return "\n\n".join(tables)


def _caption(rows: list[Record]) -> str:
    first = next((r for r in rows if "times" in r), rows[0])
    size = f", {first['parameters'] / 1e6:.1f} million parameters" if "parameters" in first else ""
    small = ", the small version" if first["small"] else ""
    machine = first["device"] if first["kind"] == "cuda" else f"{first['threads']} CPU threads"
    clock = ", processor time" if first.get("clock") == "process" else ""
    runs = len({tuple(r["base"]) for r in rows if "base" in r})
    mixed = f"; rows of {runs} runs, each over the SGD of its own" if runs > 1 else ""
    return f"**{first['model']}**{size}{small}; {machine}{clock}, torch {first['torch']}{mixed}"


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


def update(found: list[Record]) -> str:
    """Return the time of an update alone, its share of the copy bandwidth, and over AdamW's."""
    found = [r for r in found if r["benchmark"] == "update" and "times" in r]
    models = list(dict.fromkeys(r["model"] for r in found))
    by = {(r["model"], r["method"]): r for r in found}
    sizes = [(by[m, "copy"]["elements"] / 1e6, by[m, "copy"]["tensors"]) for m in models]
    named = [f"{m}: {n:.0f} M in {t}" for m, (n, t) in zip(models, sizes, strict=True)]
    lines = ["| us (share of the copy; over AdamW, fused) | " + " | ".join(named) + " |"]
    lines.append("| --- " * (1 + len(models)) + "|")
    for method in dict.fromkeys(r["method"] for r in found):
        cells = [_update_cell(by, model, method) for model in models]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _update_cell(by: dict[tuple[str, str], Record], model: str, method: str) -> str:
    if (model, method) not in by:
        return "-"
    own, copy, adamw = by[model, method], by[model, "copy"], by[model, "AdamW, fused"]
    took = median(own["times"])
    share = own["bytes"] / took * median(copy["times"]) / copy["bytes"]
    return f"{took * 1e6:.0f} ({share:.0%}; {took / median(adamw['times']):.2f})"


def probe(found: list[Record]) -> str:
    """Return what a probe costs in gradients, and the memory that it adds."""
    found = latest([r for r in found if r["benchmark"] == "probe" and "times" in r], "model", "way")
    lines = ["| model | how | c | a gradient, ms | memory of a probing iteration, MB | ordinary |"]
    lines.append("| --- " * 6 + "|")
    for r in found:
        memory = [f"{r['memory'][n] / 1e6:.0f}" for n in ("probing", "ordinary")]
        if r["way"] == "captured":
            memory = ["-", "-"]  # a graph has its memory for good
        gradient = median(r["times"]["gradient"]) * 1e3
        row = [r["model"], r["way"], f"{r['cost']:.2f}", f"{gradient:.3g}", *memory]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def scaling(found: list[Record]) -> str:
    """Return the overhead by size and by probe_every, what was expected in brackets."""
    found = [r for r in found if r["benchmark"] == "scaling" and "times" in r]
    lines = ["| parameters | " + " | ".join(f"every {n}" for n in FREQUENCIES) + " |"]
    lines.append("| --- " * (1 + len(FREQUENCIES)) + "|")
    for r in found:
        cells = ["{:.3f} ({:.3f})".format(*overhead(r, n)) for n in FREQUENCIES]
        lines.append(f"| {r['parameters'] / 1e6:.1f} M | " + " | ".join(cells) + " |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[list[Record]], str]] = {
    "update": update,
    "probe": probe,
    "against": against,
    "scaling": scaling,
}
"""By the kind of the records."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("records", nargs="+", type=Path)
    found = records(*parser.parse_args().records)
    kinds = {r["benchmark"] for r in found}
    print("\n\n".join(draw(found) for kind, draw in TABLES.items() if kind in kinds))


if __name__ == "__main__":
    main()
