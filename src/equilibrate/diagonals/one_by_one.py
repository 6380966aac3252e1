"""Folding on the device, one diagonal after the other: the reference of `diagonals.fused`."""

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor


def fold(
    kind: ModuleType,
    diagonals: Sequence[Tensor],
    products: Sequence[Tensor],
    old: Tensor,
    new: Tensor,
    fine: Tensor,
) -> tuple[Tensor, Tensor]:
    """Fold products into diagonals, where `fine`; return sums of |D| and counts of D != 0."""
    old, new = torch.where(fine, old, 1.0), torch.where(fine, new, 0.0)
    for d, product, a, b in zip(diagonals, products, old.unbind(), new.unbind(), strict=True):
        kind.mix_(d, torch.where(fine, product, 0.0), a, b)
    sizes = [kind.magnitude(d) for d in diagonals]
    totals = [d.sum(dtype=torch.float64) for d in sizes]
    return torch.stack(totals), torch.stack([d.count_nonzero() for d in sizes])
