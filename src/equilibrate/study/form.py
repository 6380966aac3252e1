"""What a problem must look like: each function returns what is wrong and the right form, or None.

The mistakes are those of people who have a model, a DataLoader and a loss at hand.
"""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

_LOADER = "`batches = list(loader)` and `inputs, targets = map(torch.cat, zip(*batches))` make them"
_DATASET = f"`loader = DataLoader(dataset, batch_size=100)`, {_LOADER}"  # of one without a len, too
_NAMED = "`inputs = torch.cat([batch['inputs'] for batch in batches])`"


def model_mistake(model: Any) -> str | None:
    """Tell what is wrong with a problem's `model`.

    Example:
        >>> model_mistake(lambda seed: nn.Linear(2, 1)) is None
        True
        >>> model_mistake(nn.Linear(2, 1))
        'model is a network; give the function that makes it: model=model, not model=model(0)'
    """
    if isinstance(model, nn.Module):
        return (
            "model is a network; give the function that makes it: model=model, not model=model(0)"
        )
    if not callable(model):
        return f"model is a {type(model).__name__}; it must be a function, def model(seed): ..."
    if not _takes(model, 0):
        return (
            f"model is called with a seed, which {_signature(model)} does not take; write "
            "def model(seed): ..., which may ignore it"
        )
    first = next(iter(inspect.signature(model).parameters)) if isinstance(model, type) else "seed"
    if first != "seed":
        return (
            f"model is called with a seed, which the class {model.__name__} would take for its "
            f"{first}; write model=lambda seed: {model.__name__}()"
        )
    return None


def network_mistake(network: Any) -> str | None:
    """Tell what is wrong with what `model(seed)` returned."""
    if isinstance(network, nn.Module):
        return None
    return f"model(seed) returned a {type(network).__name__}; it must return a torch.nn.Module"


def data_mistake(data: Any) -> str | None:
    """Tell what is wrong with a problem's `data`, before it is called.

    Example:
        >>> data_mistake(lambda: 3) is None
        True
        >>> data_mistake([1, 2])
        'data is a list; it must be a function, data=lambda: (inputs, targets), of two tensors'
    """
    if isinstance(data, DataLoader | Dataset):
        return "data is " + _held(data)
    if not callable(data):
        return (
            f"data is a {type(data).__name__}; it must be a function, "
            "data=lambda: (inputs, targets), of two tensors"
        )
    if not _takes(data):
        return f"data is called without arguments, which {_signature(data)} needs; write def data()"
    return None


def cases_mistake(cases: Any, what: str = "data() returned", must: str = "return") -> str | None:
    """Tell what is wrong with the cases; `what` and `must` say how they were given.

    Example:
        >>> cases_mistake(3)
        'data() returned a int; it must return (inputs, targets), two tensors in memory'
        >>> cases_mistake(3, "data is", "be")
        'data is a int; it must be (inputs, targets), two tensors in memory'
    """
    if isinstance(cases, DataLoader | Dataset):
        return f"{what} {_held(cases)}"
    wanted = f"it must {must} (inputs, targets), two tensors in memory"
    if not isinstance(cases, tuple | list):
        return f"{what} a {type(cases).__name__}; {wanted}"
    if len(cases) != 2 or not all(isinstance(part, Tensor) for part in cases):
        held = ", ".join(type(part).__name__ for part in cases[:4]) or "nothing"
        arrays = any(type(part).__module__ == "numpy" for part in cases)
        how = ": torch.as_tensor(array) makes one of an array" if arrays else ""
        return f"{what} a {type(cases).__name__} of {held}; {wanted}{how}"
    if not all(part.dim() for part in cases):
        return f"{what} a pair with a tensor of one number; its first dimension must count cases"
    return None


def measure_mistake(what: str, measure: Any) -> str | None:
    """Tell what is wrong with a problem's `loss` or `error`, before it is called.

    Example:
        >>> measure_mistake("loss", nn.functional.mse_loss) is None
        True
        >>> measure_mistake("loss", nn.MSELoss)
        'loss is the class MSELoss; give a loss of that class: loss=MSELoss()'
    """
    if isinstance(measure, type):
        name = measure.__name__
        return f"{what} is the class {name}; give a loss of that class: {what}={name}()"
    if not callable(measure):
        return (
            f"{what} is a {type(measure).__name__}; it must be a function, {what}(output, targets)"
        )
    return None


def _held(thing: Any) -> str:
    how = _LOADER if isinstance(thing, DataLoader) else _DATASET
    return (
        f"a {type(thing).__name__}; the data are two tensors in memory, (inputs, targets): {how}; "
        f"where a batch is a dictionary, {_NAMED}, by its own keys"
    )


def _takes(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a function of C shows no signature: it will tell by itself
        return True
    return True


def takes_nothing(function: Callable[..., Any]) -> bool:
    """Tell whether a function can be called without arguments.

    Example:
        >>> takes_nothing(lambda: 1), takes_nothing(lambda seed: 1)
        (True, False)
    """
    return _takes(function)


def _signature(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name}{inspect.signature(function)}"
