"""The command `equilibrate wins`: arguments, what is run, what is written."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from equilibrate.paper.records import NotRecorded
from equilibrate.rivals.soap import MissingRival
from equilibrate.study.arguments import count, few, seed, share, typed
from equilibrate.study.device import check_device
from equilibrate.study.files import StudyError
from equilibrate.study.looks import MissingExtra, require_drawing
from equilibrate.wins.arena import Arena
from equilibrate.wins.fight import CHOICES
from equilibrate.wins.fighters import BASELINE, FIGHTERS, OURS
from equilibrate.wins.fought import fought
from equilibrate.wins.page import page
from equilibrate.wins.publish import draw, publish
from equilibrate.wins.tasks import TASKS
from equilibrate.wins.terms import Terms

DESCRIPTION = """\
Fight: ESGD with Nesterov's momentum, as shipped, against AdamW, NAdam, RMSProp, Muon, SOAP and,
without noise, L-BFGS. Each is tuned by equally many learning rates over equally many decades; the
finals run on instances that no tuning has seen. Records are kept as they are made: stop it at any
time, and the same command goes on. A page (Markdown) and figures are drawn from the records.
"""
DEFAULT = ("image-64-sine", "image-64-gaussian", "image-64-relu", "decays")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to a parser."""
    add = parser.add_argument
    add("tasks", nargs="*", metavar="TASK",
        help=f"{', '.join(TASKS)}; where none is named: {', '.join(DEFAULT)}")  # fmt: skip
    add("--out", type=Path, default=Path("out/wins"), metavar="DIR",
        help="folder of the page, the figures and the records (default: out/wins)")  # fmt: skip
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where trials train")
    add("--workers", type=few, default=1, metavar="N", help="trials that train at once")
    add("--records-only", action="store_true",
        help="draw nothing: for a machine without matplotlib")  # fmt: skip
    add("--frozen", action="store_true", help="train nothing: draw from the records alone")
    add("--publish", type=Path, metavar="DIR",
        help="add the fight, its records packed, to the pages in this folder")  # fmt: skip
    _add_terms(parser)


def _add_terms(parser: argparse.ArgumentParser) -> None:
    """Add what decides what is trained, with the defaults of `Terms`."""
    add = parser.add_argument
    add("--fighters", nargs="+", choices=FIGHTERS, metavar="NAME",
        help=f"of {', '.join(FIGHTERS)}; {OURS} and {BASELINE} must be among them")  # fmt: skip
    add("--first", type=seed, metavar="N",
        help="the first instance (default: 0); another number makes all of them fresh")  # fmt: skip
    add("--tuning", type=count, metavar="N", help="instances for tuning (default: 2)")
    add("--finals", type=count, metavar="N", help="instances for finals (default: 5)")
    add("--epochs", type=count, metavar="N", help="of a trial at most; shorter for a trial run")
    add("--per-decade", type=count, metavar="N", help="learning rates in a decade (default: 4)")
    add("--extensions", type=_extensions, metavar="N", help="of all grids at most (default: 2)")
    add("--ramp", type=share, metavar="SHARE",
        help="of a run in which every learning rate rises first (default: none)")  # fmt: skip
    add("--choose", choices=CHOICES,
        help="the learning rate with the least geometric mean of the errors over the instances, or "
        "with the least error on the worst of them (default: mean)")  # fmt: skip
    add("--growth-limit", type=_growth, metavar="C",
        help="growth_limit of ESGD: a number above 1, or none (default: as shipped)")  # fmt: skip
    known = {field.name: field.default for field in fields(Terms) if field.name != "tasks"}
    parser.set_defaults(**known)


def execute(arguments: argparse.Namespace, _: str) -> int:
    """Run the command; return its exit status. Pages tell its terms, not how it was typed."""
    try:
        print(run(arguments))
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


def run(arguments: argparse.Namespace) -> Path:
    """Fight, measure, draw and write; return the page."""
    if not arguments.records_only:
        require_drawing()  # before hours of training, not after
    check_device(arguments.device)
    terms = Terms.chosen({**vars(arguments), "tasks": list(arguments.tasks or DEFAULT)})
    arena = Arena(arguments.out, arguments.device, arguments.workers, arguments.frozen)
    one = fought(terms, arena)
    if arguments.records_only:
        return arena.out / "records"
    draw(one, arena.out)
    path = arena.out / "wins.md"
    path.write_text(page([one]), encoding="utf-8")
    if arguments.publish:
        publish(one, arena.out, arguments.publish)
    return path


_extensions = typed(int, lambda n: n >= 0, "a whole number of 0 or more")
_limit = typed(float, lambda x: 1 < x < float("inf"), "a number above 1, or none")


def _growth(text: str) -> float | None:
    return None if text == "none" else float(_limit(text))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and run, as `python -m equilibrate.wins`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m equilibrate.wins", description=DESCRIPTION)
    add_arguments(parser)
    return execute(parser.parse_args(given), shlex.join(["equilibrate", "wins", *given]))
