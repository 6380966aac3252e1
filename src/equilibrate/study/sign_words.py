"""Probe signs of a stack on a GPU: all words at once, then all signs in one pass."""

from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.curvature.vectors import SIGNS_PER_WORD, sign_words, signs_of
from equilibrate.study.stacked_optimizer import fused


class SignWords:
    """Where the words of every parameter's signs lie; `draw` gives the vectors of all trials.

    The same numbers as `draw_elements`, in a dozen launches instead of a hundred.

    Example:
        >>> words = SignWords([torch.zeros(2, 3, 4), torch.zeros(2, 5)])
        >>> [v.shape for v in words.draw(torch.tensor([0, 1]), torch.tensor([7, 7]))]
        [torch.Size([2, 12]), torch.Size([2, 5])]
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        device = parameters[0].device
        self._counts = [p[0].numel() for p in parameters]
        lengths = [-(-count // SIGNS_PER_WORD) for count in self._counts]
        owner = [torch.full((n,), i, device=device) for i, n in enumerate(lengths)]
        self._owner = torch.cat(owner)
        self._number = torch.cat([torch.arange(n, device=device) for n in lengths])
        self._lengths = lengths
        self._signs = fused(signs_of, device)

    def draw(self, seeds: Tensor, probes: Tensor) -> list[Tensor]:
        """Return one tensor (trials, elements) for each parameter."""
        words = sign_words(seeds[:, None], probes[:, None], self._owner, self._number)
        signs = self._signs(words)
        parts = torch.split(signs, [n * SIGNS_PER_WORD for n in self._lengths], dim=1)
        return [part[:, :count] for part, count in zip(parts, self._counts, strict=True)]
