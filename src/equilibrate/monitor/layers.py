"""What a person watches of one layer: where its diagonal and its steps lie, and what rules them."""

import math
from collections.abc import Mapping

from torch import Tensor

from equilibrate.monitor.blocks import row_blocks, total_product
from equilibrate.monitor.denominators import Divisor
from equilibrate.monitor.distances import Sums, between_roots, noise_share, with_jacobi
from equilibrate.monitor.errors import one_probe_error
from equilibrate.monitor.probes import SAMPLE, Probes, sampled_elements

QUANTILES: Mapping[str, float] = {"q05": 0.05, "median": 0.5, "q95": 0.95}


def quantiles(values: Tensor, sample: int = 16 * SAMPLE) -> dict[str, float]:
    """Return the 5%, 50% and 95% quantile, of a sample where the tensor is large.

    Example:
        >>> import torch
        >>> quantiles(torch.arange(101.0))
        {'q05': 5.0, 'median': 50.0, 'q95': 95.0}
    """
    if not values.numel():
        return dict.fromkeys(QUANTILES, math.nan)
    drawn = values.detach().flatten()[sampled_elements(values, sample)].double()
    return {name: float(drawn.quantile(q)) for name, q in QUANTILES.items()}


def divided(found: Divisor, lr: float) -> dict[str, float]:
    """Return what the optimizer's own state says about a layer."""
    told = {f"diagonal/{name}": q for name, q in quantiles(found.diagonal).items()}
    rate = lr / found.divisor
    told |= {f"learning_rate/{name}": q for name, q in quantiles(rate).items()}
    count = max(1, found.diagonal.numel())
    unseen = int((found.diagonal == 0).sum())
    damped = int((found.diagonal < found.damping).sum()) - unseen * (found.damping > 0)
    return told | {"share_damped": damped / count, "share_unseen": unseen / count}


def probed(probes: Probes, layer: int, weight: float, kind: str) -> dict[str, float]:
    """Return what the monitor's own probes say about a layer.

    `weight` is how many probes the optimizer's diagonal is worth, not a number where it keeps none:
    then the error is that of an equilibration diagonal from the monitor's probes.
    """
    worth = probes.count if math.isnan(weight) else weight
    mean, square, variance = probes.in_units(layer)
    return {
        "relative_error": _error(probes, layer, kind) / math.sqrt(worth) if worth > 0 else math.nan,
        "share_flat": 1 - int(square.count_nonzero()) / max(1, mean.numel()),
        "share_negative_diagonal": _negative_share(mean, variance),
        "jacobi_noise_share": noise_share(mean, variance),
    }


def _error(probes: Probes, layer: int, kind: str) -> float:
    """Return the relative error that one probe leaves in a diagonal of this kind.

    Equilibration and row-column: of an element, all alike; the latter is no root, and so twice as
    far off. Jacobi: of the whole tensor, in the norm, for some of its elements are near zero; not a
    number where the probes do not tell it from noise.
    """
    if kind != "jacobi":
        return one_probe_error(probes.history(layer)) * (2 if kind == "row_column" else 1)
    mean, _, variance = probes.in_units(layer)
    noise = total_product(variance)
    signal = total_product(mean, mean) - noise
    return math.sqrt(noise * probes.count / signal) if signal > 0 else math.nan


def _negative_share(mean: Tensor, variance: Tensor) -> float:
    """Return how much of sum |H_ii| is negative, beyond two standard errors each."""
    below = total = 0.0
    for m, v in row_blocks(mean, variance):
        sure = m.where(m.abs() > 2 * v.sqrt(), 0.0)
        below -= float(sure.clamp(max=0).sum())
        total += float(sure.abs().sum())
    return below / total if total > 0 else math.nan


def distance_sums(
    probes: Probes, layer: int, equilibration: Tensor | None, gradient: Tensor | None
) -> dict[str, Sums]:
    """Return the sums behind the distances between the three diagonals of a layer.

    `equilibration` is a better one than the probes' own, where the optimizer keeps it, in the
    probes' unit; `gradient` is the squared-gradient diagonal, in any.
    """
    error = 0.0
    mean, square, variance = probes.in_units(layer)
    if equilibration is None:
        equilibration = square.sqrt()
        error = diagonal_error(probes.history(layer))
    return pair_sums(equilibration, error, mean, variance, gradient)


def diagonal_error(history: Tensor) -> float:
    """Return the relative error of the diagonal from all probes of a history; zero if unknown."""
    error = one_probe_error(history) / math.sqrt(len(history))
    return 0.0 if math.isnan(error) else error


def pair_sums(
    equilibration: Tensor,
    error: float,
    mean: Tensor,
    variance: Tensor,
    gradient: Tensor | None,
    gradient_error: float = 0.0,
) -> dict[str, Sums]:
    """Return the sums of the three pairs: Jacobi is given by its signed mean and its variance."""
    tensors = [equilibration, mean, variance, *([] if gradient is None else [gradient])]
    total: dict[str, Sums] = {}
    for rows in row_blocks(*tensors):
        for pair, sums in _block_sums(rows, error, gradient_error).items():
            total[pair] = total.get(pair, Sums()) + sums
    return total


def _block_sums(rows: list[Tensor], error: float, gradient_error: float) -> dict[str, Sums]:
    equilibration, mean, variance, *gradient = rows
    found = {"equilibration_jacobi": with_jacobi(equilibration, mean, variance, error)}
    if gradient:
        errors = error, gradient_error
        found["equilibration_gradient"] = between_roots(equilibration, gradient[0], errors)
        found["jacobi_gradient"] = with_jacobi(gradient[0], mean, variance, gradient_error)
    return found


def damp_(diagonal: Tensor, share: float, elsewhere: float) -> Tensor:
    """Make D, in place, what ESGD divides by: plus a share of its mean, that mean where D is zero.

    `elsewhere` is the mean over all tensors, for one without any curvature.

    Example:
        >>> import torch
        >>> damp_(torch.tensor([0.0, 2.0]), share=0.5, elsewhere=1.0)
        tensor([3., 3.])
    """
    seen = int(diagonal.count_nonzero())  # unlike a sum of booleans it makes no copy
    mean = float(diagonal.sum()) / seen if seen else elsewhere
    return diagonal.masked_fill_(diagonal == 0, mean).add_(share * mean)
