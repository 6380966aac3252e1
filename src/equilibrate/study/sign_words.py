"""Probe signs of a stack on a GPU: all words at once, then all signs in one pass."""

from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.curvature.vectors import SIGNS_PER_WORD, sign_words, signs_of
from equilibrate.study.fused import fused


class SignWords:
    """Where the words of every parameter's signs lie; `draw` gives the vectors of all trials.

    The same numbers as `draw_elements`, in a dozen launches instead of a hundred.

    Example:
        >>> words = SignWords([torch.zeros(2, 3, 4), torch.zeros(2, 5)])
        >>> [v.shape for v in words.draw(torch.tensor([0, 1]), torch.tensor([7, 7]))]
        [torch.Size([2, 3, 4]), torch.Size([2, 5])]
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        device = parameters[0].device
        self._shapes = [p.shape[1:] for p in parameters]
        lengths = [-(-shape.numel() // SIGNS_PER_WORD) for shape in self._shapes]
        owner = [torch.full((n,), i, device=device) for i, n in enumerate(lengths)]
        self._owner = torch.cat(owner)
        self._number = torch.cat([torch.arange(n, device=device) for n in lengths])
        self._lengths = lengths
        self._signs = fused(_signs, device)

    def draw(self, seeds: Tensor, probes: Tensor) -> list[Tensor]:
        """Return one tensor for each parameter, in its shape."""
        words = sign_words(seeds[:, None], probes[:, None], self._owner, self._number)
        vectors: list[Tensor] = self._signs(words, self._lengths, self._shapes)
        return vectors


def _signs(words: Tensor, lengths: list[int], shapes: list[torch.Size]) -> list[Tensor]:
    parts = torch.split(words, lengths, dim=1)
    return [
        signs_of(part)[:, : shape.numel()].reshape(-1, *shape)
        for part, shape in zip(parts, shapes, strict=True)
    ]
