"""The command `equilibrate wins`: arguments, what is run, what is written."""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from equilibrate.paper.drawing import MissingExtra, require_drawing, save
from equilibrate.paper.records import NotRecorded
from equilibrate.study.files import StudyError
from equilibrate.wins import drawing, pictures
from equilibrate.wins.arena import Arena
from equilibrate.wins.fight import Plan, Result, fight
from equilibrate.wins.fighters import BASELINE, FIGHTERS, OURS
from equilibrate.wins.page import page
from equilibrate.wins.soap import MissingRival
from equilibrate.wins.tasks import TASKS, Task
from equilibrate.wins.timing import seconds_per_update

DESCRIPTION = """\
Fight: ESGD with Nesterov's momentum, as shipped, against AdamW, NAdam, RMSProp, Muon, SOAP and,
without noise, L-BFGS. Each is tuned by equally many learning rates over equally many decades; the
finals run on instances that no tuning has seen. Records are kept as they are made: stop it at any
time, and the same command goes on. A page (Markdown) and figures are drawn from the records.
"""
DEFAULT = ("image-64-sine", "image-64-gaussian", "image-64-relu", "decays")
_PICTURED = "image"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to a parser."""
    add = parser.add_argument
    add("tasks", nargs="*", metavar="TASK",
        help=f"{', '.join(TASKS)}; where none is named: {', '.join(DEFAULT)}")  # fmt: skip
    add("--fighters", nargs="+", choices=FIGHTERS, metavar="NAME",
        help=f"of {', '.join(FIGHTERS)}; {OURS} and {BASELINE} must be among them")  # fmt: skip
    add("--out", type=Path, default=Path("out/wins"), metavar="DIR",
        help="folder of the page, the figures and the records (default: out/wins)")  # fmt: skip
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where trials train")
    add("--workers", type=_count, default=1, metavar="N", help="trials that train at once")
    add("--tuning", type=_count, default=2, metavar="N", help="instances for tuning (default: 2)")
    add("--finals", type=_count, default=5, metavar="N", help="instances for finals (default: 5)")
    add("--first", type=int, default=0, metavar="N",
        help="the first instance (default: 0); another number makes all of them fresh")  # fmt: skip
    add("--epochs", type=_count, metavar="N", help="of a trial at most; shorter for a trial run")
    add("--per-decade", type=_count, default=4, metavar="N", help="learning rates in a decade")
    add("--extensions", type=int, default=2, metavar="N", help="of all grids at most (default: 2)")
    add("--ramp", type=float, default=0.0, metavar="SHARE",
        help="of a run in which every learning rate rises first (default: none)")  # fmt: skip
    add("--records-only", action="store_true",
        help="draw nothing: for a machine without matplotlib")  # fmt: skip
    add("--frozen", action="store_true", help="train nothing: draw from the records alone")


def execute(arguments: argparse.Namespace, command: str) -> int:
    """Run the command; return its exit status."""
    try:
        print(run(arguments, command))
    except (ValueError, KeyError) as error:
        print(error, file=sys.stderr)
        return 2
    except (MissingExtra, MissingRival, StudyError, NotRecorded) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on from the records", file=sys.stderr)
        return 130
    return 0


def run(arguments: argparse.Namespace, command: str) -> Path:
    """Fight, measure, draw and write; return the page."""
    if not arguments.records_only:
        require_drawing()  # before hours of training, not after
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("torch finds no CUDA device here; leave --device cuda out")
    tasks = [_task(name, arguments) for name in arguments.tasks or DEFAULT]
    plan = _plan(arguments)
    arena = Arena(arguments.out, arguments.device, arguments.workers, arguments.frozen)
    results = fight(tasks, plan, arena)
    paces = [seconds_per_update(r, plan.schedule(r.task), arena) for r in results]
    pictured = [r for r in results if r.task.name.startswith(_PICTURED)]
    faults = [pictures.faults(r, plan.schedule(r.task), arena) for r in pictured]
    if arguments.records_only:
        return arena.out / "records"
    for result, found in zip(pictured, faults, strict=True):
        drawn = drawing.fields(pictures.target(result), found, result.task.label)
        save(drawn, arena.out / f"wins-{result.task.name}")
    return write(results, paces, plan, arena.out, command)


def write(
    results: Sequence[Result],
    paces: Sequence[Mapping[str, float]],
    plan: Plan,
    out: Path,
    command: str,
) -> Path:
    """Draw the figure of all tasks and write the page."""
    save(drawing.overview(results, paces), out / "wins")
    shape = f"a rise over {plan.ramp:.0%} of the run, then a cosine" if plan.ramp else "cosine"
    path = out / "wins.md"
    path.write_text(page(results, paces, plan, command, shape))
    return path


def _task(name: str, arguments: argparse.Namespace) -> Task:
    if name not in TASKS:
        raise ValueError(f"no task {name!r}; there are {', '.join(TASKS)}")
    task = TASKS[name]
    if arguments.epochs:
        task = task.shortened(arguments.epochs)
    if not arguments.fighters:
        return task
    if not {OURS, BASELINE} <= set(arguments.fighters):
        raise ValueError(f"{OURS} and {BASELINE} must be among the fighters: one fights, one times")
    return replace(task, fighters=tuple(f for f in FIGHTERS if f in arguments.fighters))


def _plan(arguments: argparse.Namespace) -> Plan:
    middle = arguments.first + arguments.tuning
    tuning = tuple(range(arguments.first, middle))
    finals = tuple(range(middle, middle + arguments.finals))
    return Plan(tuning, finals, arguments.per_decade, arguments.extensions, arguments.ramp)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {number}")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and run, as `python -m equilibrate.wins`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m equilibrate.wins", description=DESCRIPTION)
    add_arguments(parser)
    return execute(parser.parse_args(given), shlex.join(["equilibrate", "wins", *given]))
