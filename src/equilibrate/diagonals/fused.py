"""Folding into many diagonals at once, in one pass: a Triton kernel on a GPU, C++ on a CPU.

The signature is that of folding one tensor after the other (`optim.device_numbers`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from types import ModuleType

import torch
from torch import Tensor

from equilibrate.diagonals import equilibration
from equilibrate.kernels import capture, cpp

Kernel = Callable[..., tuple[Tensor, Tensor]]


def fold(
    kind: ModuleType,
    diagonals: Sequence[Tensor],
    products: Sequence[Tensor],
    old: Tensor,
    new: Tensor,
    fine: Tensor,
) -> tuple[Tensor, Tensor]:
    """Fold products into diagonals laid out alike; return sums of |D| and counts of D != 0."""
    kernel = _on_gpu() if capture.runs_kernels(diagonals[0].device) else _on_cpu
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


def _on_gpu() -> Kernel:
    """Return the kernel, which imports triton."""
    from equilibrate.kernels.fold import fold as kernel

    return kernel


def _on_cpu(
    diagonals: Sequence[Tensor],
    products: Sequence[Tensor],
    old: Tensor,
    new: Tensor,
    fine: Tensor,
    *,
    roots: bool,
) -> tuple[Tensor, Tensor]:
    """Fold by C++; what is not finite counts as nothing measured."""
    if not fine:
        products, new = [torch.zeros_like(p) for p in products], torch.zeros_like(new)
        old = torch.ones_like(old)
    return cpp.fold(diagonals, products, old, new, roots=roots)
