"""Folding into many diagonals at once on a GPU, in one pass: `kernels.fold` for any dtypes.

The signature is that of folding one tensor after the other (`optim.device_numbers`).
"""

from collections import defaultdict
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from equilibrate.diagonals import equilibration


def fold(
    kind: ModuleType,
    diagonals: Sequence[Tensor],
    products: Sequence[Tensor],
    old: Tensor,
    new: Tensor,
    fine: Tensor,
) -> tuple[Tensor, Tensor]:
    """Fold products into diagonals laid out alike; return sums of |D| and counts of D != 0."""
    from equilibrate.kernels.fold import fold as kernel

    if len({d.dtype for d in diagonals}) == 1 and all(map(Tensor.numel, diagonals)):
        return kernel(diagonals, products, old, new, fine, roots=kind is equilibration)
    places: dict[torch.dtype, list[int]] = defaultdict(list)
    for i, d in enumerate(diagonals):
        if d.numel():
            places[d.dtype].append(i)
    totals, counts = torch.zeros_like(old), torch.zeros_like(old, dtype=torch.int64)
    for chosen in places.values():
        total, count = kernel(
            [diagonals[i] for i in chosen],
            [products[i] for i in chosen],
            torch.stack([old[i] for i in chosen]),
            torch.stack([new[i] for i in chosen]),
            fine,
            roots=kind is equilibration,
        )
        torch._foreach_copy_([totals[i] for i in chosen], list(total.unbind()))
        torch._foreach_copy_([counts[i] for i in chosen], list(count.unbind()))
    return totals, counts
