"""Which code is a user's own, what it is made of and what it uses.

The rest is known by its name and its version.
"""

import functools
import inspect
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_KNOWN = ("torch", "equilibrate")
_PYTHONS_OWN = tuple(Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib"))
_INSTALLED = {"site-packages", "dist-packages"}
_WRAPPERS: dict[type, str] = {
    staticmethod: "__func__",
    classmethod: "__func__",
    property: "fget",
    functools.cached_property: "func",
}


def is_own(thing: Any) -> bool:
    """Tell whether a function, a class, a module or an object's class is the user's own.

    Not torch's, this package's, Python's or another installed package's.

    Example:
        >>> is_own(lambda loss: loss), is_own(Path), is_own(Path()), is_own(inspect)
        (False, False, False, False)
    """
    return _is_own_module(_module_of(thing))


def is_known(thing: Any) -> bool:
    """Tell whether a function, a class or an object's class is torch's or this package's.

    Example:
        >>> import torch
        >>> is_known(torch.optim.SGD), is_known(Path)
        (True, False)
    """
    return _module_of(thing).partition(".")[0] in _KNOWN


def name_of(thing: Any) -> str:
    """Return the name of a function or class that is not the user's, an installed one's version.

    Without torch's and this package's: a newer one of these leaves every key as it was.

    Example:
        >>> name_of(Path)
        'pathlib.Path'
    """
    module = _module_of(thing)
    name = f"{module}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
    installed = not is_known(thing) and _INSTALLED & set(_file(module).parts)
    version = _version(module.partition(".")[0]) if installed else ""
    return f"{name} {version}" if version else name


def text_of(code: CodeType) -> Any:
    """Return the lines of a function; its instructions where no file holds it.

    `inspect.getsource` may end a lambda after its first line, and shows what a decorator wraps in
    the place of the decorator.
    """
    try:
        lines, start = inspect.findsource(code)
    except (OSError, IndexError):
        return _instructions(code)
    ends = [end for _, end, _, _ in code.co_positions() if end]
    return "".join(lines[start : max(ends)]) if ends else _instructions(code)


def nested(code: CodeType) -> Iterator[CodeType]:
    """Return a function's code and that of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def members(kind: type) -> dict[str, Any]:
    """Return what a class defines: functions, and values but those that Python adds."""
    found = {}
    for name, member in vars(kind).items():
        for wrapper, inner in _WRAPPERS.items():
            member = getattr(member, inner) if isinstance(member, wrapper) else member
        if getattr(member, "hooked", False):  # torch wraps `step` when an optimizer is first made
            member = member.__wrapped__
            if member.__qualname__ != f"{kind.__qualname__}.{name}":
                continue  # a parent's
        if isinstance(member, FunctionType) or not name.startswith("__"):
            found[name] = member
    return found


def slots(thing: Any) -> dict[str, Any]:
    """Return what an object holds in the slots of its classes."""
    listed = [getattr(kind, "__slots__", ()) for kind in type(thing).__mro__]
    names = [name for each in listed for name in ([each] if isinstance(each, str) else each)]
    return {name: getattr(thing, name) for name in names if hasattr(thing, name)}


def reached(function: FunctionType) -> dict[str, Any]:
    """Return what a function may take from around it, and from modules of the user's own there."""
    names = sorted({name for each in nested(function.__code__) for name in each.co_names})
    found: dict[str, Any] = {}
    waiting, seen = [("", function.__globals__)], set()
    while waiting:
        place, around = waiting.pop()
        for name in (name for name in names if name in around):
            held = found[f"{place}{name}"] = around[name]
            if isinstance(held, ModuleType) and is_own(held) and held.__name__ not in seen:
                seen.add(held.__name__)
                waiting.append((f"{place}{name}.", vars(held)))
    return found


def closed_over(function: FunctionType) -> dict[str, Any]:
    """Return what a function takes from the function around it."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if _filled(cell)}


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _instructions(code: CodeType) -> list[Any]:
    constants = [
        _instructions(c) if isinstance(c, CodeType)
        else sorted(map(repr, c)) if isinstance(c, frozenset)  # whose order is another in every run
        else repr(c)
        for c in code.co_consts
    ]  # fmt: skip
    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), constants]


def _module_of(thing: Any) -> str:
    if isinstance(thing, ModuleType):
        return thing.__name__
    if isinstance(thing, MethodType):
        return _module_of(thing.__func__)
    if isinstance(thing, FunctionType):  # a decorator gives its function another's `__module__`
        return str(thing.__globals__.get("__name__", ""))
    named = isinstance(thing, type) or inspect.isbuiltin(thing)
    return str((thing if named else type(thing)).__module__ or "builtins")


def _is_own_module(name: str) -> bool:
    top, file = name.partition(".")[0], _file(name)
    if top in _KNOWN or _INSTALLED & set(file.parts):
        return False
    if not file.parts:  # a built-in module, or what was typed in
        return top == "__main__" or top not in sys.stdlib_module_names
    return not any(file.is_relative_to(folder) for folder in _PYTHONS_OWN)


def _file(module: str) -> Path:
    return Path(getattr(sys.modules.get(module), "__file__", None) or "")


@functools.cache
def _version(package: str) -> str:
    names = metadata.packages_distributions().get(package, [package])
    try:
        return metadata.version(names[0])
    except metadata.PackageNotFoundError:
        return ""
