"""What a user may have meant by a name that is not known: a hint for the error that says so."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec


def did_you_mean(name: str, known: Iterable[str], others: Iterable[str] = ()) -> str:
    """Return a question that names what was meant, empty where nothing is near.

    Args:
        name: as it was given.
        known: names that are near if their letters are.
        others: `module:name` of more, which are only meant by the very name.

    Example:
        >>> did_you_mean("esdg", ["sgd", "esgd"])
        'did you mean esgd? '
        >>> did_you_mean("torch.optim.NAdam", [])
        'did you mean torch.optim:NAdam? '
        >>> did_you_mean("NAdam", ["adam"], ["torch.optim:NAdam"])
        'did you mean torch.optim:NAdam? '
        >>> did_you_mean("lion", ["sgd", "esgd"])
        ''
    """
    known = list(known)
    same = [each for each in known if each.lower() == name.lower()]
    others = [each for each in others if each.partition(":")[2].lower() == name.lower()]
    near = get_close_matches(name.lower(), known, n=1)
    found = [*_dotted(name), *same, *others, *near]
    return f"did you mean {found[0]}? " if found else ""


def _dotted(name: str) -> list[str]:
    """Return `module:name` for `module.name`, where there is such a module."""
    module, _, attribute = name.rpartition(".")
    try:
        there = ":" not in name and bool(attribute) and find_spec(module) is not None
    except (ImportError, ValueError):  # no such package, or no name of a module
        return []
    return [f"{module}:{attribute}"] if there else []
