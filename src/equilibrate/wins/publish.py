"""Publishing a fight: its packed records, and pages and figures drawn from these alone.

    equilibrate wins TASK ... --publish RESULTS     adds a fight to what is published
    python -m equilibrate.wins.publish RESULTS      draws everything again

A fight has a folder of its own, named by its terms; fights with one schedule share a page. Finals
are published whole. Of the curves of all other trials only the first and the last point are kept:
no page or figure uses more of them, and they are four fifths of the bytes. The seconds of a trial,
which trained beside others, mean little and stay at home (its total is told with its origin);
pictures have at most 128 pixels on a side.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from equilibrate.paper.drawing import save
from equilibrate.paper.publish import origin_table, pack, public, records_in
from equilibrate.paper.records import write
from equilibrate.study.journal import Record, read_records
from equilibrate.wins import drawing, pictures
from equilibrate.wins.arena import Arena
from equilibrate.wins.fought import Fought, fought
from equilibrate.wins.page import page
from equilibrate.wins.terms import Terms

TERMS = "terms.json"
_TOLD = ("command", "commit", "device", "machine", "versions")
_LAUNCHER = "__main__.py"  # how a worker process sees `python -m equilibrate.wins`


def publish(one: Fought, out: Path, results: Path) -> None:
    """Add a fight to what is published, and draw all of it again."""
    folder = results / one.terms.name
    known = (
        Terms.of((folder / TERMS).read_text(encoding="utf-8"))
        if (folder / TERMS).exists()
        else one.terms
    )
    terms = one.terms.with_tasks(known.tasks)
    if replace(terms, tasks=()) != replace(known, tasks=()):
        raise ValueError(f"{folder} holds a fight by other terms: {known.command}")
    for task in one.terms.tasks:
        (folder / "records" / task).mkdir(parents=True, exist_ok=True)
        trials = sorted(_trials(one, out, task), key=lambda record: str(record["key"]))
        pack(trials, folder / "records" / task)
    for path in _measured(one.terms, out):
        write(folder / "records" / path.name, _slim(public(json.loads(path.read_bytes()))))
    (folder / TERMS).write_text(terms.as_text(), encoding="utf-8")
    redraw(results)


def redraw(results: Path, *, figures: bool = True) -> list[Path]:
    """Draw every page, and the figures, from the published records; return the pages."""
    fights = [_read(path.parent) for path in sorted(results.glob(f"*/{TERMS}"))]
    pages = []
    for name in sorted({one.terms.page for one in fights}):
        chosen = [one for one in fights if one.terms.page == name]
        pages.append(results / f"{name}.md")
        pages[-1].write_text(page(chosen, pictures="{}/"), encoding="utf-8")
    if figures:
        for one in fights:
            draw(one, results / one.terms.name)
    (results / "README.md").write_text(_origin(results, fights), encoding="utf-8")
    return pages


def draw(one: Fought, folder: Path) -> None:
    """Draw the figures of a fight."""
    _save(drawing.summary(one.results, one.paces), folder / "summary")
    _save(drawing.curves(one.results, one.paces), folder / "curves")
    for task, faults in one.faults.items():
        result = one.result(task)
        title = f"{result.task.label}, instance {one.terms.plan.finals[0]}"
        shown = {fighter: pictures.thinned(fault) for fighter, fault in faults.items()}
        drawn = drawing.fields(pictures.thinned(pictures.target(result)), shown, title)
        _save(drawn, folder / f"fields-{task}")


def _save(picture: Any, stem: Path) -> None:
    """Write a PNG of 256 colours: a third of the bytes, and nobody sees the difference."""
    path = save(picture, stem, ("png",), drawing.DPI)["png"]
    from PIL import Image  # comes with matplotlib

    with Image.open(path) as image:
        slim = image.convert("RGB").quantize(
            256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    slim.save(path, optimize=True)


def _read(folder: Path) -> Fought:
    return fought(
        Terms.of((folder / TERMS).read_text(encoding="utf-8")), Arena(folder, frozen=True)
    )


def _trials(one: Fought, out: Path, task: str) -> Iterator[Record]:
    """Yield the trials that the fight is made of, without those of other fights beside them."""
    result = one.result(task)
    whole = {r["key"] for r in _all(result.finals.values())}
    thinned = {r["key"] for row in (result.tuning, result.shipped) for r in _all(row.values())}
    for key, record in read_records(out / "records" / task).items():
        if key in whole:
            yield public({**record, "curve": _untimed(record["curve"])})
        elif key in thinned:
            yield public({**record, "curve": _ends(_untimed(record["curve"]))})


def _all(rows: Iterable[Sequence[Record]]) -> list[Record]:
    return [record for row in rows for record in row]


def _ends(curve: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [*points[:1], *points[1:][-1:]] for name, points in curve.items()}


def _untimed(curve: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: points for name, points in curve.items() if name != "seconds"}


def _slim(record: dict[str, Any]) -> dict[str, Any]:
    """Return a timing as it is, a picture no larger than it is drawn."""
    if "fault" not in record["data"]:
        return record
    fault = pictures.unpacked(record["data"]["fault"])
    return {**record, "data": {"fault": pictures.packed(pictures.thinned(fault))}}


def _measured(terms: Terms, out: Path) -> Iterator[Path]:
    """Yield the files of timings and pictures that belong to these terms."""
    plan, tasks = terms.plan, {task.name: task for task in terms.made()}
    for path in sorted((out / "records").glob("*.json")):
        settings = json.loads(path.read_bytes())["settings"]
        if settings["task"] in tasks:
            schedule = settings.get("schedule") or settings["settings"]["lr_schedule"]
            ours = settings.get("instance", plan.finals[0]) == plan.finals[0]
            if ours and schedule in (plan.schedule(tasks[settings["task"]]), "constant"):
                yield path


def _origin(results: Path, fights: Sequence[Fought]) -> str:
    pages = sorted({one.terms.page for one in fights})
    records = (r for one in fights for r in records_in(results / one.terms.name / "records"))
    return "\n".join([
        "# The fight against AdamW, NAdam, RMSProp, Muon, SOAP and L-BFGS", "",
        f"Pages: {', '.join(f'[{name}]({name}.md)' for name in pages)}. A folder is a fight: the",
        "schedule, the first instance, the instances of the tuning, those of the finals.",
        "`python -m equilibrate.wins.publish results/wins` draws everything again from the",
        "records. Curves of tuned finals are whole; of all other curves the first and the last",
        "point are kept. The time is that from the first start to the last record.", "",
        *origin_table(map(_renamed, records), _TOLD), "",
    ])  # fmt: skip


def _renamed(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose command reads as it was typed, without folders of one machine."""
    made = record["provenance"]
    words = made["command"].replace(_LAUNCHER, "python -m equilibrate.wins").split()
    kept = [w for before, w in zip(["", *words], words, strict=False) if before != "--out"]
    command = " ".join(word for word in kept if word != "--out")
    return {**record, "provenance": {**made, "command": command}}


if __name__ == "__main__":
    redraw(Path(sys.argv[1]))
