"""Drawing signs for many parameters in one launch on a GPU: `kernels.signs` for any dtypes."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from equilibrate.kernels.capture import number


def draw_signs(
    likes: Sequence[Tensor], numbers: Sequence[int], *, seed: int, probe: int | Tensor
) -> list[Tensor]:
    """Draw the signs of parameters of one device; the same as `draw_like` draws for each."""
    from equilibrate.kernels import signs

    device = likes[0].device
    seeds = number(seed, device, torch.int64)
    probes = probe if isinstance(probe, Tensor) else number(probe, device, torch.int64)
    if len({like.dtype for like in likes}) == 1 and all(map(Tensor.numel, likes)):
        return signs.draw(likes, numbers, seed=seeds, probe=probes)
    drawn: list[Any] = [None] * len(likes)
    places: dict[torch.dtype, list[int]] = defaultdict(list)
    for i, like in enumerate(likes):
        if like.numel():
            places[like.dtype].append(i)
        else:
            drawn[i] = torch.empty_like(like)
    for chosen in places.values():
        found = signs.draw(
            [likes[i] for i in chosen], [numbers[i] for i in chosen], seed=seeds, probe=probes
        )
        for i, part in zip(chosen, found, strict=True):
            drawn[i] = part
    return drawn
