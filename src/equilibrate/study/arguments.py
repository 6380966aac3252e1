"""The arguments of `equilibrate compare`, and the help it shows."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from equilibrate.study.contenders import CONTENDERS
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.trial import PRECISIONS

DESCRIPTION = """\
Compare optimizers on a problem: search every method's settings with the same number of trials,
then train each winner with more seeds. Writes a table, its numbers and a picture. What is computed
is recorded as it is computed: stop it at any time, and the same command goes on where it was.
"""

CLUSTER = "train on a Ray cluster: HOST:PORT of its head, or local for one on this machine"


def epilog() -> str:
    """The built-in problems and methods, for the help."""
    problems = [f"  {name:24}{make(None).name}" for name, make in BUILT_IN.items()]
    methods = [f"  {name:24}{method.label or name}" for name, method in CONTENDERS.items()]
    return "\n".join(
        ["problems:", *problems, "  module:name             your own: a Problem in module.py", "",
         "methods:", *methods, "  module:name             any torch optimizer class, or a Method"]
    )  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to a parser."""
    add = parser.add_argument
    add("problem", metavar="PROBLEM", help="a name from the list below, or module:name")
    _add_what_is_compared(parser)
    add("--device", choices=("cpu", "cuda"), default="cpu", help="(default: cpu)")
    help_at_once = "trials trained together: a number, or auto, what is fastest here (default)"
    add("--at-once", type=_at_once, metavar="N", help=help_at_once)
    help_threads = "of the CPU (default: torch's own choice; on a cluster 1 for every group)"
    add("--threads", type=few, metavar="N", help=help_threads)
    add("--cluster", metavar="ADDRESS", help=CLUSTER)
    add("--data", type=Path, metavar="DIR", help="folder of the built-in problems' data files")
    help_out = "folder of the records and results (default: out/compare-PROBLEM)"
    add("--out", type=Path, metavar="DIR", help=help_out)
    help_target = "error to count updates and seconds to (default: the worst method's final error)"
    add("--target", type=_number, metavar="X", help=help_target)


def _add_what_is_compared(parser: argparse.ArgumentParser) -> None:
    add, names = parser.add_argument, ("sgd", "rmsprop", "adam", "esgd", "esgd-nesterov")
    help_methods = f"names from the list below, or module:name (default: {' '.join(names)})"
    add("--methods", nargs="+", default=names, metavar="M", help=help_methods)
    add("--trials", type=count, default=8, metavar="N", help="of every method (default: 8)")
    add("--epochs", type=count, default=20, metavar="E", help="of a trial (default: 20)")
    help_seeds = "train each method's winner with S seeds, the search's own included (default: 1)"
    add("--seeds", type=count, default=1, metavar="S", help=help_seeds)
    help_search = "train all trials to the end, or cut the worse ones early (default: random)"
    add("--search", choices=("random", "halving"), default="random", help=help_search)
    add("--precision", choices=PRECISIONS, default="float32", help="(default: float32)")
    help_schedule = (
        "of the learning rate: constant, cosine, linear, ending, ramp:N, or two with a +"
    )
    add("--schedule", metavar="S", help=help_schedule)
    add("--momentum", type=share, metavar="M", help="for the optimizers that have one")
    add("--batch-size", type=count, metavar="B", help="(default: the problem's own)")


def typed(convert: Callable[[str], Any], accept: Callable[[Any], bool], words: str) -> Any:
    """An argument type that says what it wants.

    Example:
        >>> typed(int, lambda n: n > 0, "a whole number of 1 or more")("7")
        7
    """

    def parse(text: str) -> Any:
        try:
            value = convert(text)
        except ValueError:
            value = None
        if value is None or not accept(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {words}")
        return value

    return parse


# Threads and processes: with too many of them torch crashes, and no machine has more cores.
_MOST = 1024

count = typed(int, lambda n: n >= 1, "a whole number of 1 or more")
few = typed(int, lambda n: 1 <= n <= _MOST, f"a whole number from 1 to {_MOST}")
seed = typed(int, lambda n: abs(n) < 2**63, "a whole number below 2^63")
share = typed(float, lambda x: 0 <= x < 1, "a number from 0 to below 1")
_number = typed(float, lambda x: abs(x) < float("inf"), "a number")


def _at_once(text: str) -> int | None:
    return None if text == "auto" else int(count(text))
