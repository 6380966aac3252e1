"""Large tensors a block of rows at a time, so that what is made in passing stays small.

A sum in double precision, for one, copies its whole tensor into that precision.
"""

from collections.abc import Iterator

from torch import Tensor, float64

_BLOCK = 2**18  # elements


def row_blocks(*tensors: Tensor) -> Iterator[list[Tensor]]:
    """Yield the same rows of several tensors of one shape, some at a time.

    Example:
        >>> import torch
        >>> [rows[0].shape[0] for rows in row_blocks(torch.zeros(600, 1000))]
        [262, 262, 76]
    """
    whole = [t.reshape(1) if t.ndim == 0 else t for t in tensors]
    rows = max(1, _BLOCK * len(whole[0]) // max(1, whole[0].numel()))
    for start in range(0, max(1, len(whole[0])), rows):  # at least once, if empty
        yield [t[start : start + rows] for t in whole]


def total_product(*factors: Tensor) -> float:
    """Return the sum of the elementwise product of tensors of one shape, in double precision.

    Example:
        >>> import torch
        >>> total_product(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        11.0
    """
    total = 0.0
    for product, *others in row_blocks(*factors):
        for factor in others:
            product = product * factor
        total += float(product.sum(dtype=float64))
    return total
