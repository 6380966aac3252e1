"""The command `equilibrate compare`: what is run, what is written, signals, exit status."""

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from equilibrate.study.choose import Chooser
from equilibrate.study.cluster import connected
from equilibrate.study.compare import Means, Plan, adapted, compare
from equilibrate.study.contenders import MethodError, find_method
from equilibrate.study.device import DeviceError, check_device
from equilibrate.study.files import StudyError, explained, write_whole
from equilibrate.study.find import find_problem
from equilibrate.study.looks import MissingExtra, require_drawing
from equilibrate.study.methods import Method
from equilibrate.study.outcome import Record
from equilibrate.study.plots import draw
from equilibrate.study.problem import Problem, ProblemError
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.rehearse import rehearse
from equilibrate.study.stopping import exit_status, stoppable
from equilibrate.study.summary import plain, summarize
from equilibrate.study.table import table


class Refusal(RuntimeError):
    """Raised where the command cannot do what was asked; the text says what to do."""


def execute(arguments: argparse.Namespace, command: str) -> int:
    """Run the command; return its exit status. Ctrl-C gives 130, SIGTERM 143."""
    try:
        with stoppable():
            run(arguments)
    except (Refusal, ProblemError, MethodError, DeviceError) as error:
        return _failed(error, 2)
    except (StudyError, MissingExtra) as error:
        return _failed(error, 1)
    except torch.OutOfMemoryError:
        return _failed("the device's memory is full; train fewer trials together, --at-once N", 1)
    except KeyboardInterrupt as stop:
        return _failed("stopped; the same command goes on from the records", exit_status(stop))
    return 0


def run(arguments: argparse.Namespace) -> None:
    """Compare, print the table, write it and the picture."""
    require_drawing()  # before hours of training, not after
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does: a user's own modules are here
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = _device(arguments)
    methods = _methods(arguments)
    problem = _problem(arguments)
    plan = Plan(
        problem,
        methods,
        trials=arguments.trials,
        epochs=arguments.epochs,
        seeds=arguments.seeds,
        halving=arguments.search == "halving",
        precision=arguments.precision,
    )
    folder = arguments.out or Path("out") / f"compare-{_slug(arguments.problem)}"
    if _is_here(arguments):
        rehearse(plan, device)
    chooser = Chooser(problem, {m.name: m for m in methods}, folder, device, arguments.at_once)
    records = _compare(plan, chooser, arguments)
    _write(records, methods, arguments.target, folder)


def _compare(plan: Plan, chooser: Chooser, arguments: argparse.Namespace) -> list[Record]:
    """Train here, or on the cluster that was named."""
    if arguments.cluster is None:
        means = Means(chooser.make_trainer, chooser.together, chooser.device)
        return compare(plan, chooser.folder, means)
    threads, gpu = arguments.threads or 1, arguments.device == "cuda"
    with connected(arguments.cluster, threads=threads, gpu=gpu) as crew:
        chooser = replace(chooser, where=crew.call)
        means = Means(chooser.make_trainer, chooser.together, chooser.device, crew=crew)
        return compare(plan, chooser.folder, means)


def _write(
    records: list[Record], methods: list[Method], target: float | None, folder: Path
) -> None:
    summary = summarize(records, methods, target=target)
    text = table(summary)
    write_whole(folder / "table.md", text.encode())
    numbers = json.dumps(plain(summary), indent=1, allow_nan=False)
    write_whole(folder / "summary.json", numbers.encode() + b"\n")
    with explained(folder):
        pictures = draw(records, methods, summary, folder / "compare")
    print(text)
    paths = [folder / "table.md", folder / "summary.json", *pictures, folder / "records.jsonl"]
    print("\n".join(str(path) for path in paths))


def _device(arguments: argparse.Namespace) -> torch.device:
    if arguments.cluster is None:
        check_device(arguments.device)
    if arguments.device == "cpu" and arguments.precision == "tf32":
        raise Refusal("tf32 is a GPU's precision; choose another, or --device cuda")
    return torch.device(arguments.device)


def _problem(arguments: argparse.Namespace) -> Problem:
    folder = arguments.data
    if folder is not None and not folder.is_dir():
        raise Refusal(f"there is no folder {folder}; --data names the folder of the data files")
    problem = find_problem(arguments.problem, BUILT_IN, folder)
    if arguments.batch_size:
        problem = replace(problem, batch_size=arguments.batch_size)
    if arguments.problem not in BUILT_IN:
        if _is_here(arguments):
            problem.check(torch.device(arguments.device))
        return problem
    try:
        _ = problem.cases
    except ProblemError:
        raise
    except (OSError, ValueError, ImportError) as error:  # a file missing, damaged or unreadable
        raise Refusal(str(error)) from error
    return problem


def _is_here(arguments: argparse.Namespace) -> bool:
    """Tell whether the device is this machine's; the GPUs of a cluster are elsewhere."""
    return arguments.cluster is None or arguments.device == "cpu"


def _methods(arguments: argparse.Namespace) -> list[Method]:
    found = _of_different_names({name: _method(name) for name in arguments.methods})
    try:
        methods, without = adapted(found, schedule=arguments.schedule, momentum=arguments.momentum)
    except ValueError as error:
        raise Refusal(str(error)) from error
    for name in without:
        print(f"--momentum: {name} takes none and is trained without", file=sys.stderr)
    return methods


def _of_different_names(asked: Mapping[str, Method]) -> list[Method]:
    """Return the methods, each once; refuse two of one name, whose trials nobody could tell."""
    found: dict[str, str] = {}
    for asked_as, method in asked.items():
        first = found.setdefault(method.name, asked_as)
        if asked[first] is not method:
            raise Refusal(
                f"{first} and {asked_as} are two methods of one name, {method.name!r}; give your "
                f"own another: Method(name=...), or replace(method, name=...)"
            )
    return [asked[first] for first in found.values()]


def _method(name: str) -> Method:
    try:
        return find_method(name)
    except ModuleNotFoundError as error:
        module = name.partition(":")[0].removesuffix(".py")
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there and misses something of its own
        raise Refusal(
            f"there is no module {module!r} here or on Python's path, for the method {name}"
        ) from error
    except ValueError as error:
        raise Refusal(str(error)) from error


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)


def _failed(message: object, status: int) -> int:
    print(f"equilibrate compare: {message}", file=sys.stderr)
    return status
