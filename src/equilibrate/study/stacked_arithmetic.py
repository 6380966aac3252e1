"""What a stack of curvature optimizers computes over all its tensors: folding, measuring, moving.

Functions of tensors (trials, elements) alone, so that a GPU runs each compiled, in few passes.
"""

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from equilibrate.optim import growth
from equilibrate.rules import stacked


@cache
def folding(kind: ModuleType) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the fold of all tensors into the chosen trials.

    It tells, for each trial and tensor, the sum and the number of what is not zero afterwards.
    """

    def fold(
        diagonals: list[Tensor],
        vectors: list[Tensor],
        products: list[Tensor],
        chosen: Tensor,
        old: Tensor,
        new: Tensor,
        rows: list[int],
    ) -> tuple[Tensor, Tensor]:
        totals, seen = [], []
        for diagonal, v, product, length in zip(diagonals, vectors, products, rows, strict=True):
            contribution = torch.where(chosen, kind.contribution(v, product), 0.0)
            kind.mix_(diagonal, contribution, old, new)
            # Row by row first: few trials are too few for a device to share the work.
            magnitude = kind.magnitude(diagonal).view(len(diagonal), -1, length)
            totals.append(magnitude.sum(-1).sum(-1))
            seen.append((magnitude != 0).sum(-1).sum(-1))
        return torch.stack(totals, 1), torch.stack(seen, 1)

    return fold


@cache
def stepping(kind: ModuleType) -> Callable[..., None]:
    """Return the update of all tensors by the diagonals as they are stored."""

    def step(
        parameters: list[Tensor],
        gradients: list[Tensor],
        diagonals: list[Tensor],
        buffers: list[Tensor] | None,
        damping: Tensor,
        fill: Tensor,
        others: dict[str, Any],
    ) -> None:
        for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            stacked.step_(
                parameter,
                gradient,
                kind.magnitude(diagonals[i]),
                buffers[i] if buffers else None,
                damping=damping[:, i : i + 1],
                fill=fill[:, i : i + 1],
                **others,
            )

    return step


@cache
def limiting(kind: ModuleType) -> Callable[..., Tensor]:
    """Return what measures the update of every trial and limits its growth (`optim.growth`).

    It renews the averages and counts in place and returns the factor on each trial's update, with
    that of `optim.mean_floor` where a `brake` is given.
    """

    def limit(
        gradients: list[Tensor],
        diagonals: list[Tensor],
        damping: Tensor,
        fill: Tensor,
        update_limit: Tensor | None,
        rows: list[int],
        elements: int,
        averages: tuple[Tensor, Tensor],
        allowed: Tensor,
        brake: Tensor | None,
    ) -> Tensor:
        totals = []
        for i, (gradient, diagonal) in enumerate(zip(gradients, diagonals, strict=True)):
            numbers = damping[:, i : i + 1], fill[:, i : i + 1], update_limit
            update = stacked.divided(gradient, kind.magnitude(diagonal), *numbers)
            square = update.double().square().view(len(update), -1, rows[i])
            totals.append(square.sum(-1).sum(-1))  # row by row first, as in a fold
        size = (torch.stack(totals, 1).sum(1) / elements).sqrt()
        size = size if brake is None else size * brake
        factor = growth.limit_(size, *averages, allowed)
        return (factor if brake is None else factor * brake).to(damping.dtype)

    return limit
