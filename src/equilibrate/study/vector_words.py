"""Probe vectors of a stack on a GPU: the words of all parameters at once, then all elements."""

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from equilibrate.curvature.vectors import (
    NORMALS_PER_WORD,
    SIGNS_PER_WORD,
    Distribution,
    normals_of,
    signs_of,
    vector_words,
)
from equilibrate.study.fused import fused

_KINDS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "rademacher": (signs_of, SIGNS_PER_WORD),
    "gaussian": (normals_of, NORMALS_PER_WORD),
}


class VectorWords:
    """Where the words of every parameter's elements lie; `draw` gives the vectors of all trials.

    The same numbers as `draw_elements`, in a dozen launches instead of hundreds.

    Example:
        >>> words = VectorWords("rademacher", [torch.zeros(2, 3, 4), torch.zeros(2, 5)])
        >>> [v.shape for v in words.draw(torch.tensor([0, 1]), torch.tensor([7, 7]))]
        [torch.Size([2, 3, 4]), torch.Size([2, 5])]
    """

    def __init__(self, distribution: Distribution, parameters: Sequence[Tensor]) -> None:
        elements, held = _KINDS[distribution]
        device = parameters[0].device
        self._shapes = [p.shape[1:] for p in parameters]
        lengths = [-(-shape.numel() // held) for shape in self._shapes]
        owner = [torch.full((n,), i, device=device) for i, n in enumerate(lengths)]
        self._owner = torch.cat(owner)
        self._number = torch.cat([torch.arange(n, device=device) for n in lengths])
        self._lengths = lengths
        self._spread = fused(_spreading(elements), device)

    def draw(self, seeds: Tensor, probes: Tensor) -> list[Tensor]:
        """Return one tensor for each parameter, in its shape."""
        words = vector_words(seeds[:, None], probes[:, None], self._owner, self._number)
        vectors: list[Tensor] = self._spread(words, self._lengths, self._shapes)
        return vectors


@cache
def _spreading(elements: Callable[[Tensor], Tensor]) -> Callable[..., list[Tensor]]:
    """Return a function that makes the vectors of all parameters from their words."""

    def spread(words: Tensor, lengths: list[int], shapes: list[torch.Size]) -> list[Tensor]:
        parts = torch.split(words, lengths, dim=1)
        return [
            elements(part)[:, : shape.numel()].reshape(-1, *shape)
            for part, shape in zip(parts, shapes, strict=True)
        ]

    return spread
