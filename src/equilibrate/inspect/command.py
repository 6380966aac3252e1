"""The command `equilibrate inspect`: arguments, what is run, what is written, exit status."""

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path

import torch

from equilibrate.inspect import report
from equilibrate.inspect.findings import FULL, QUICK
from equilibrate.inspect.measure import inspect, work
from equilibrate.inspect.place import make_room, place_of
from equilibrate.inspect.subject import InspectError, Subject
from equilibrate.inspect.verdict import beside, verdict
from equilibrate.study.arguments import count, seed
from equilibrate.study.device import DeviceError, check_device
from equilibrate.study.files import told
from equilibrate.study.find import find_problem
from equilibrate.study.problem import Problem, ProblemError
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.progress import Progress

DESCRIPTION = """\
Measure the curvature of a model on its own data and loss, before and after each preconditioner,
and write one self-contained HTML report: spectra, condition numbers, diagonals layer by layer,
noise, and suggested settings with their reasons. No matrix is ever stored: beyond the model and
its gradient at most five vectors of its size.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to a parser."""
    add = parser.add_argument
    help_problem = f"module:name, a Problem of your own, or one of {', '.join(BUILT_IN)}"
    add("problem", metavar="PROBLEM", help=help_problem)
    add("--quick", action="store_true", help="fewer products: seconds, with wider intervals")
    add("--seed", type=seed, default=0, help="of the network, the batches and the probes")
    add("--batch-size", type=count, metavar="B", help="(default: the problem's own)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="(default: cpu)")
    add("--data", type=Path, metavar="DIR", help="folder of the built-in problems' data files")
    help_out = "the report (default: out/inspect-PROBLEM.html)"
    add("--out", type=Path, metavar="FILE", help=help_out)


def execute(arguments: argparse.Namespace, command: str) -> int:
    """Run the command; return its exit status: 2 for what cannot be inspected, 130 for Ctrl-C."""
    try:
        print(run(arguments, command))
    except (InspectError, ProblemError, DeviceError) as error:
        return _failed(error, 2)
    except torch.OutOfMemoryError:
        return _failed("the device's memory is full; a smaller --batch-size takes less", 1)
    except OSError as error:
        return _failed(f"{told(error)}; --out names the report, --data the folder of the data", 1)
    except KeyboardInterrupt:
        return _failed("stopped; nothing was written", 130)
    return 0


def run(arguments: argparse.Namespace, command: str) -> Path:
    """Inspect, and write the report; return its path."""
    check_device(arguments.device)
    path = _path(arguments)
    place = place_of(path)
    budget = QUICK if arguments.quick else FULL
    problem = _problem(arguments)
    device = torch.device(arguments.device)
    subject = Subject(problem, seed=arguments.seed, device=device, batches=budget.batches)
    make_room(place)
    progress = Progress(subject.name[:22], work(subject, budget))
    found = inspect(subject, budget, quick=arguments.quick, progress=progress)
    progress.finish()
    report.write(found, place, command=command)
    print(f"{verdict(found)} {beside(found)}")
    return path


def _path(arguments: argparse.Namespace) -> Path:
    """Return what the report is called."""
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", arguments.problem)
    return arguments.out or Path("out") / f"inspect-{slug}.html"


def _problem(arguments: argparse.Namespace) -> Problem:
    problem = find_problem(arguments.problem, BUILT_IN, arguments.data)
    if arguments.batch_size:
        problem = replace(problem, batch_size=arguments.batch_size)
    return problem


def _failed(message: object, status: int) -> int:
    print(f"equilibrate inspect: {message}", file=sys.stderr)
    return status
