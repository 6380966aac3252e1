"""Products of the Hessian with vectors by central differences of gradients.

    H v = (g(theta + e v) - g(theta - e v)) / (2 e) + O(e^2)

This needs gradients alone, so it works where second derivatives cannot be had: sharded parameters,
compiled models. Two errors oppose each other. Truncation: e^2/6 times the third derivative of g
along v. Rounding: each gradient is known to about u |g|, u the unit roundoff of the
arithmetic, which the division turns into u |g| / e. With curvature, gradient and third derivative
of the same order in units where the parameters have size one, their sum u/e + e^2/6 is smallest at
e = (3 u)^(1/3). In the parameters' own units that step is multiplied by their root mean square, so
that measuring in other units (theta -> c theta) measures the same thing.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

GradientFunction = Callable[[list[Tensor]], Sequence[Tensor]]


def relative_step(dtype: torch.dtype) -> float:
    """Return (3 u)^(1/3), the step for parameters of size one computed in `dtype`.

    Example:
        >>> [round(relative_step(d), 6) for d in (torch.float64, torch.float32, torch.bfloat16)]
        [7e-06, 0.005634, 0.22714]
    """
    unit_roundoff = torch.finfo(dtype).eps / 2
    return float((3 * unit_roundoff) ** (1 / 3))


def parameter_size(parameters: Sequence[Tensor]) -> float:
    """Return the root mean square over all parameters; one where they are all zero or absent."""
    count = sum(p.numel() for p in parameters)
    squares = sum(float(p.detach().double().square().sum()) for p in parameters)
    return float((squares / count) ** 0.5) if squares > 0 else 1.0


def default_step(parameters: Sequence[Tensor]) -> float:
    """Return the step for these parameters, from the coarsest of their dtypes."""
    coarsest = max((p.dtype for p in parameters), key=lambda dtype: torch.finfo(dtype).eps)
    return relative_step(coarsest) * parameter_size(parameters)


def difference_product(
    gradient: GradientFunction,
    parameters: Sequence[Tensor],
    vectors: Sequence[Tensor],
    *,
    step: float | None = None,
    stacked: bool = False,
) -> list[Tensor]:
    """Return H v from two gradients, at theta + e v and at theta - e v.

    `gradient` maps a list of parameters to the list of their gradients. `step` is e; None chooses
    it by the dtype as derived at the top of this module. With `stacked` every vector has one more,
    leading, dimension; its rows are multiplied one after the other.

    Example:
        >>> w = torch.tensor([1.0, 2.0], dtype=torch.float64)
        >>> found = difference_product(lambda p: [3 * p[0] ** 2], [w], [torch.ones_like(w)])
        >>> found[0].round(decimals=6)
        tensor([ 6., 12.], dtype=torch.float64)
    """
    if step is not None and not 0 < step < math.inf:
        raise ValueError(
            f"Invalid step: {step!r}. It must be a finite number > 0, or None for the step that "
            "suits the parameters."
        )
    eps = default_step(parameters) if step is None else step
    if stacked:
        rows = [
            difference_product(gradient, parameters, row, step=eps)
            for row in zip(*vectors, strict=True)
        ]
        return [torch.stack(parts) for parts in zip(*rows, strict=True)]
    with torch.no_grad():
        ahead = [p + eps * v for p, v in zip(parameters, vectors, strict=True)]
        behind = [p - eps * v for p, v in zip(parameters, vectors, strict=True)]
    # A copy: the function may hand out the same buffers each time.
    first = [g.detach().clone() for g in gradient(ahead)]
    return [(a - b.detach()) / (2 * eps) for a, b in zip(first, gradient(behind), strict=True)]
