"""Lists of tensors: whether two hold the same ones, and whether one launch takes them all.

All are asked in every step, about a hundred tensors and more: on a GPU the host that asks is what
a step of many small tensors waits for.
"""

from collections.abc import Sequence
from operator import is_

from torch import Tensor


def same(tensors: Sequence[Tensor | None], others: Sequence[Tensor]) -> bool:
    """Tell whether two lists hold the very same tensors in the same order.

    Example:
        >>> import torch
        >>> one, other = torch.zeros(2), torch.zeros(2)
        >>> same([one, other], [one, other]), same([one], [other]), same([one], [one, other])
        (True, False, False)
    """
    return tensors is others or (len(tensors) == len(others) and all(map(is_, tensors, others)))


def alike(first: Sequence[Tensor], *others: Sequence[Tensor] | None) -> bool:
    """Tell whether one launch takes them all: contiguous, none empty, one dtype in each column.

    Every row has one shape: a kernel goes by that of its first tensor, and would read and write
    beyond the end of a smaller one (a state that was loaded for another network).

    Example:
        >>> import torch
        >>> alike([torch.zeros(2), torch.zeros(3)], [torch.zeros(2), torch.zeros(3).double()])
        False
        >>> alike([torch.zeros(2)], [torch.zeros(1)])
        False
    """
    shapes = list(map(Tensor.size, first))
    for column in filter(None, (first, *others)):
        if not all(map(Tensor.is_contiguous, column)):
            return False
        if len({tensor.dtype for tensor in column}) > 1:
            return False
        if column is not first and list(map(Tensor.size, column)) != shapes:
            return False
    return bool(first) and all(map(Tensor.numel, first))


def written_out(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the tensors with every sign as it is in memory, where kernels read it.

    torch negates some views lazily: the memory of `z.conj().imag` has the other sign.

    Example:
        >>> import torch
        >>> lazy = torch.tensor([1 + 2j]).conj().imag
        >>> lazy.is_neg(), written_out([lazy])[0].is_neg()
        (True, False)
    """
    return list(map(Tensor.resolve_neg, tensors)) if any(map(Tensor.is_neg, tensors)) else tensors
