"""How right every way to probe is: its |H v| against that of a second derivative, same v.

    error = ||found - true|| / ||true||

over all parameters, and in the worst tensor. Differences of gradients take one width for all
parameters, so that where tensors differ in size by a hundred they may be right on the whole and
wrong in one tensor.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from equilibrate.distributed import norm
from equilibrate.monitor.probe_ways import CLOSURE, PROBE, SHARED, Ways

# Of the whole product's norm; in a smaller tensor rounding of the others would count as an error.
_COUNTED = 0.01
# Kernels that add in any order repeat to 1e-6 or so, to a percent in half precision.
_REPEATS = 0.05

_CHANGES = (
    "The loss is another one at each call: the same product with the Hessian, measured twice, gave "
    "two results. Return the loss of one fixed batch: draw the batch outside this function. "
    "Dropout by torch's generators draws the same masks again; where the model has noise from "
    "elsewhere, or changes its own state in the forward pass, call model.eval() first."
)


@dataclass(frozen=True)
class Error:
    """The relative error of a product: on the whole, and in the worst tensor, by its name.

    `inside` tells that there is a product inside `math_attention` alone.
    """

    whole: float
    worst: float
    where: str = ""
    inside: bool = False


def errors(ways: Ways, names: Sequence[str]) -> tuple[dict[str, Error], dict[str, str]]:
    """Return the error of every way that can be had, and why the others cannot."""
    found: dict[str, Error] = {}
    refused: dict[str, str] = {}
    exact: list[Tensor] | None = None
    for call in (PROBE, SHARED, CLOSURE):
        inside = call != CLOSURE and ways.fails_outside(call)  # before: it begins anew
        try:
            products = ways.products(call)
            true = exact or (ways.coarser() if call == CLOSURE else products)
        except RuntimeError as error:  # memory that does not suffice, too
            # Not what to do about it: the other ways stand beside.
            refused[call] = f"The reason: {error.__cause__}" if error.__cause__ else str(error)
        else:
            found[call] = replace(error_of(products, true, names), inside=inside)
            exact = true
    return found, refused


def refuse_changing(ways: Ways) -> None:
    """Raise where the loss is another one each time, by its product or else by its gradient."""
    try:
        first, second = ways.products(PROBE), ways.products(PROBE)
    except RuntimeError:  # no second derivative
        first, second = ways.slopes(), ways.slopes()
    if _apart(second, first) > _REPEATS:
        raise ValueError(_CHANGES)


def error_of(found: Sequence[Tensor], true: Sequence[Tensor], names: Sequence[str]) -> Error:
    """Return how far products are from true ones, on the whole and in the worst tensor.

    Example:
        >>> import torch
        >>> true = [torch.tensor([3.0, 4.0]), torch.tensor([0.5]), torch.tensor([0.001])]
        >>> error_of([true[0], 2 * true[1], 2 * true[2]], true, ["a", "b", "c"])  # c is too small
        Error(whole=0.09950..., worst=1.0, where='b', inside=False)
    """
    least = _COUNTED * norm(true)
    each = [
        (_apart([f], [t]), name)
        for f, t, name in zip(found, true, names, strict=True)
        if norm([t]) >= least > 0
    ]
    whole = _apart(found, true)
    return Error(whole, *max(each, key=lambda pair: pair[0])) if each else Error(whole, whole)


def _apart(found: Sequence[Tensor], true: Sequence[Tensor]) -> float:
    """Return the relative distance of products from true ones."""
    change, size = norm([f - t for f, t in zip(found, true, strict=True)]), norm(true)
    return change / size if size else math.inf if change else 0.0
