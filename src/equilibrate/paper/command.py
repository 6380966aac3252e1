"""The command `equilibrate paper`: arguments, signals, exit status."""

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from equilibrate.paper.figures import FIGURES
from equilibrate.paper.records import AT_ONCE, NotRecorded
from equilibrate.paper.run import Means, NothingToCompute, arms_of, record, run
from equilibrate.study.arguments import CLUSTER, count, few
from equilibrate.study.cluster import connected
from equilibrate.study.device import DeviceError, check_device
from equilibrate.study.files import StudyError, require_folder, told
from equilibrate.study.looks import MissingExtra
from equilibrate.study.progress import clock
from equilibrate.study.stopping import exit_status, stoppable

DESCRIPTION = """\
Compute the paper's figures, judge its claims, and write one HTML report beside the figures
(SVG, PDF, PNG) and the claims table (JSON). What is computed is recorded as it is computed:
stop it at any time, run the same command again, and it goes on where it was. A second run
with all records only draws.
"""

TASKS = ("mnist", "mnist-linear", "curves-like", "curves-like-linear")


_ADDING = [name for name, figure in FIGURES.items() if figure.adds_seeds]
_ARMED = [name for name, figure in FIGURES.items() if arms_of(figure.settings(False))]
_TASKED = [name for name, figure in FIGURES.items() if hasattr(figure.settings(False), "tasks")]


def _only_named() -> str:
    left_out = ", ".join(name for name, figure in FIGURES.items() if not figure.in_quick)
    return f"quick: all but {left_out}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to a parser."""
    parser.add_argument(
        "figures",
        nargs="*",
        metavar="FIGURE",
        help=f"{', '.join(FIGURES)}; all where none is named ({_only_named()})",
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer problems, shorter training: minutes, two cores"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out"), metavar="DIR",
        help="folder of the report, the figures and the records (default: out)",
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu",
        help="where studies train (the full ones need cuda)",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, metavar="DIR",
        help="folder of the MNIST files (default: $EQUILIBRATE_DATA, else a cache)",
    )  # fmt: skip
    parser.add_argument("--cluster", metavar="ADDRESS", help=CLUSTER)
    parser.add_argument(
        "--at-once", type=count, default=AT_ONCE, metavar="N",
        help=f"trials of a study in one stack, at most (default: {AT_ONCE})",
    )  # fmt: skip
    _add_parts(parser)
    parser.add_argument(
        "--jobs", type=few, default=1, metavar="N",
        help="compute N figures, or tasks of a figure, at the same time (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--records-only", action="store_true",
        help="compute and record, draw nothing: for a machine without matplotlib",
    )  # fmt: skip
    parser.add_argument(
        "--untimed", action="store_true",
        help="leave the times of an update for a later run: for a GPU that others use as well",
    )  # fmt: skip


def _add_parts(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that ask for a part of a figure."""
    parser.add_argument(
        "--task", action="append", default=[], choices=TASKS,
        help="compute one task of a figure that has several: a part that runs beside another",
    )  # fmt: skip
    parser.add_argument(
        "--arm", action="append", default=[], metavar="NAME",
        help="train one method of a study alone, untimed, in an --out of its own, beside others; "
        "append the records.jsonl of such runs to each other to get the study's",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=count, metavar="N",
        help=f"train winners with N seeds at most; a later run adds others ({', '.join(_ADDING)})",
    )  # fmt: skip
    parser.add_argument(
        "--seeds-ahead", action="append", default=[], metavar="ARM",
        help="train every setting of a method that may still win with all seeds, and not only the "
        "winner afterwards: more work, in one stack instead of two (damped)",
    )  # fmt: skip


def _mistake(arguments: argparse.Namespace) -> str | None:
    """Return what is wrong with the arguments, where something is."""
    named: list[str] = arguments.figures
    unknown = [name for name in named if name not in FIGURES]
    if unknown:
        return f"no figure {unknown[0]!r}; there are {', '.join(FIGURES)}"
    for option, given, able in (
        ("--seeds", arguments.seeds, _ADDING),
        ("--task", arguments.task, _TASKED),
        ("--arm", arguments.arm, _ARMED),
        ("--seeds-ahead", arguments.seeds_ahead, ["damped"]),
    ):
        others = [name for name in named if name not in able]
        if given and others:
            return f"{option} is not for {others[0]}, but for {', '.join(able)}"
    for option, given, able in (
        ("--arm", arguments.arm, _ARMED),
        ("--seeds-ahead", arguments.seeds_ahead, ["damped"]),
    ):
        if given and not named:
            return f"{option} needs the name of a figure: {', '.join(able)}"
    for name in named:
        arms = arms_of(FIGURES[name].settings(arguments.quick))
        asked = (*arguments.arm, *arguments.seeds_ahead)
        missing = [arm for arm in asked if arm not in arms]
        if missing:
            return f"{name} has no arm {missing[0]!r}; it has {', '.join(arms)}"
    if arguments.jobs > 1 and arguments.cluster is not None:
        return "--jobs is for this machine, --cluster for others: choose one"
    return None


def execute(arguments: argparse.Namespace, command: str) -> int:
    """Run the command; return its exit status. Ctrl-C gives 130, SIGTERM 143."""
    mistake = _mistake(arguments)
    if mistake is not None:
        print(mistake, file=sys.stderr)
        return 2
    started = time.perf_counter()
    try:
        with stoppable():
            path = _run(arguments, command)
    except (DeviceError, NothingToCompute) as error:
        print(error, file=sys.stderr)
        return 2
    except (MissingExtra, StudyError, NotRecorded) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except FileNotFoundError as error:  # a data file: the text says where to get it
        print(f"\n{error}", file=sys.stderr)
        return 1
    except OSError as error:
        advice = "--out names another folder; records so far are kept"
        print(f"\n{told(error)}. {advice}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print("\nstopped; the same command goes on from the records", file=sys.stderr)
        return exit_status(stop)
    took = clock(time.perf_counter() - started)
    label = "records" if arguments.records_only else "report"
    label = f"quick {label}" if arguments.quick else label
    print(f"{label} after {took} min: {path.resolve()}")
    return 0


def _run(arguments: argparse.Namespace, command: str) -> Path:
    """Compute with the trials of the studies here, or on the cluster that was named."""
    means = Means(
        device=arguments.device,
        data=arguments.data,
        tasks=tuple(arguments.task),
        arms=tuple(arguments.arm),
        at_once=arguments.at_once,
        timed=not (arguments.untimed or arguments.arm),  # arms are timed side by side or not at all
        seeds=arguments.seeds,
        ahead=tuple(arguments.seeds_ahead),
        jobs=arguments.jobs,
    )
    quick, out = arguments.quick, arguments.out
    require_folder(out)  # before anything is computed
    with ExitStack() as leaving:
        if arguments.cluster is None:
            check_device(arguments.device)
        else:
            connection = connected(arguments.cluster, gpu=arguments.device == "cuda")
            means = replace(means, crew=leaving.enter_context(connection))
        if arguments.records_only:
            return record(arguments.figures, out, quick=quick, means=means)
        return run(arguments.figures, out, quick=quick, command=command, means=means)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and run, as `python -m equilibrate.paper`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m equilibrate.paper", description=DESCRIPTION)
    add_arguments(parser)
    return execute(parser.parse_args(given), shlex.join(["equilibrate", "paper", *given]))
