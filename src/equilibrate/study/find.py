"""Finding a problem by its name: a built-in one, or `module:name` in a file of the user's."""

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from equilibrate.study.form import takes_nothing
from equilibrate.study.meant import did_you_mean
from equilibrate.study.problem import Problem, ProblemError


def find_problem(
    name: str,
    built_in: Mapping[str, Callable[[Path | None], Problem]],
    folder: Path | None = None,
) -> Problem:
    """Return a built-in problem by its name, or a user's own by `module:name`.

    The module is looked for as Python does, and in the present folder; `name` is a Problem or a
    function without arguments that returns one.

    Args:
        name: of the problem.
        built_in: by name, called with the folder (`problems.BUILT_IN`).
        folder: of the data files of built-in problems; None for the usual places.
    """
    if name in built_in:
        return built_in[name](folder)
    module_name, _, attribute = name.partition(":")
    if not attribute or not all(module_name.split(".")):  # no module, or a relative one
        raise ProblemError(
            f"no problem {name!r}; {did_you_mean(name, built_in)}there are "
            f"{', '.join(built_in)}, and a problem of your own is module:name, such as "
            f"my_file:my_problem for my_file.py in this folder"
        )
    module = _module(module_name.removesuffix(".py"))
    found = _attribute(module, attribute)
    made = _called(found) if callable(found) else found
    if not isinstance(made, Problem):
        raise ProblemError(
            f"{name} is a {type(made).__name__}; it must be an equilibrate.study.Problem or a "
            f"function without arguments that returns one; problems in {module.__name__}: "
            f"{_problems_in(module)}"
        )
    return made


def _called(found: Any) -> Any:
    """Return what a function without arguments makes; a class, a network or another is no such."""
    calls = not isinstance(found, type | nn.Module) and takes_nothing(found)
    return found() if calls else found


def _module(name: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there and misses something of its own
        raise ProblemError(
            f"there is no module {name!r} here or on Python's path; is {name.replace('.', '/')}.py "
            f"in this folder?"
        ) from error


def _attribute(module: Any, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError as error:
        raise ProblemError(
            f"{module.__name__} has no {name!r}; problems in it: {_problems_in(module)}"
        ) from error


def _problems_in(module: Any) -> str:
    names = [name for name, thing in vars(module).items() if isinstance(thing, Problem)]
    return ", ".join(names) or "none"
