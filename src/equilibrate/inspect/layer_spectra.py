"""Layer by layer: the spectrum of the first batch's own block, before and after equilibration.

Every layer costs two more recursions, so that a budget of them goes to those with the largest part
of the Hessian in them: rows with the largest sum of squares, which is what the probes' E[h^2] is.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from equilibrate.inspect.findings import Block, Budget, Layer
from equilibrate.inspect.subject import Subject
from equilibrate.monitor.spectrum import spectrum
from equilibrate.study.progress import Progress

LAYER_WORK = 1 / 6
"""A product with a layer's block in products with the whole Hessian: 7 ms and 40 on CURVES-like."""


def most_curved(squares: Sequence[Tensor], count: int) -> list[int]:
    """Return the positions of the layers with the largest sums of E[h^2], in any unit.

    None without any.

    Example:
        >>> import torch
        >>> most_curved([torch.ones(2), torch.zeros(5), torch.full((3,), 2.0)], 2)
        [0, 2]
    """
    sums = {i: float(square.sum()) for i, square in enumerate(squares)}
    curved = [i for i in sorted(sums, key=lambda i: -sums[i]) if sums[i] > 0]
    return sorted(curved[:count])


def with_blocks(
    layers: Sequence[Layer],
    subject: Subject,
    budget: Budget,
    divisors: Sequence[Tensor],
    chosen: Sequence[int],
    progress: Progress,
) -> list[Layer]:
    """Return the layers, the chosen ones with the spectra of their blocks."""
    found = list(layers)
    for i in chosen:
        product = subject.hessian(0, layer=i)
        blocks = {}
        for name, diagonal in (("none", None), ("equilibration", [divisors[i]])):
            seen = spectrum(
                product,
                [subject.parameters[i]],
                diagonal=diagonal,
                steps=budget.layer_steps,
                starts=1,
                seed=subject.seed,
                told=partial(progress.advance, LAYER_WORK),
            )
            blocks[name] = Block(seen.largest, seen.condition(0.5), seen.condition(0.9))
        found[i] = replace(found[i], blocks=blocks)
    return found
