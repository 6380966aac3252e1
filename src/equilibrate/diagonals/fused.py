"""Folding into many diagonals at once, in one pass: a Triton kernel on a GPU, C++ on a CPU.

The signature is that of folding one after the other, `one_by_one`, which takes what is left: dtypes
that C++ is not built for, tensors of a class of their own.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType

import torch
from torch import Tensor

from equilibrate.diagonals import equilibration, one_by_one
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
    on_gpu = capture.runs_kernels(diagonals[0].device)
    kernel = _kernel(kind) if on_gpu else partial(_on_cpu, kind)
    if len({d.dtype for d in diagonals}) == 1 and all(map(Tensor.numel, diagonals)):
        return kernel(diagonals, products, old, new, fine)
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
        )
        torch._foreach_copy_([totals[i] for i in chosen], list(total.unbind()))
        torch._foreach_copy_([counts[i] for i in chosen], list(count.unbind()))
    return totals, counts


def _kernel(kind: ModuleType) -> Kernel:
    """Return the kernel of a GPU, which imports triton."""
    from equilibrate.kernels.fold import fold as kernel

    return partial(kernel, roots=kind is equilibration)


def _on_cpu(
    kind: ModuleType,
    diagonals: Sequence[Tensor],
    products: Sequence[Tensor],
    old: Tensor,
    new: Tensor,
    fine: Tensor,
) -> tuple[Tensor, Tensor]:
    """Fold by C++, where it can; what is not finite counts as nothing measured."""
    if not fine or not cpp.knows([*diagonals, *products]):
        return one_by_one.fold(kind, diagonals, products, old, new, fine)
    return cpp.fold(diagonals, products, old, new, roots=kind is equilibration)
