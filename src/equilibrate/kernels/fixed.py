"""Tensors that stay where they are from step to step, and what was found out about them once.

A step over a hundred tensors asks each of them for its dtype, its layout and its address, and on a
GPU the host that asks is what the step waits for. Parameters and state rarely change; so they are
remembered, and then it is only asked whether they are still the same tensors at the same places.
"""

from collections.abc import Sequence
from operator import is_
from weakref import ref

import torch
from torch import Tensor

Column = Sequence[Tensor]


def same(column: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> bool:
    """Tell whether two lists hold the very same tensors in the same order.

    Example:
        >>> one, other = torch.zeros(2), torch.zeros(2)
        >>> same([one, other], [one, other]), same([one], [other]), same([one], [one, other])
        (True, False, False)
    """
    return len(column) == len(other) and all(map(is_, column, other))


def alike(columns: Sequence[Column]) -> bool:
    """Tell whether one launch takes them all: contiguous, none empty, one dtype in each column."""
    if not columns[0] or not all(map(Tensor.numel, columns[0])):
        return False
    contiguous = all(all(map(Tensor.is_contiguous, column)) for column in columns)
    return contiguous and all(len({t.dtype for t in column}) == 1 for column in columns)


class Fixed:
    """Columns of tensors, one row a parameter: their sizes, dtypes and addresses."""

    def __init__(self, columns: Sequence[Column]) -> None:
        """Ask the tensors, and keep none: a state that is moved away must leave its memory."""
        self.sizes: tuple[int, ...] = tuple(map(Tensor.numel, columns[0]))
        self.kinds: list[torch.dtype] = [column[0].dtype for column in columns]
        self.addresses = _addresses(columns)
        self._tensors = [[ref(tensor) for tensor in column] for column in columns]

    def still(self, columns: Sequence[Column]) -> bool:
        """Tell whether these are the same tensors, at the same places and laid out as before."""
        if len(columns) != len(self._tensors):
            return False
        known = ([tensor() for tensor in column] for column in self._tensors)
        if not all(map(same, columns, known)) or _addresses(columns) != self.addresses:
            return False
        # A parameter may be given other data, by chance at the same place.
        alike_in_kind = {t.dtype for t in columns[0]} == {self.kinds[0]}
        return alike_in_kind and all(map(Tensor.is_contiguous, columns[0]))


def _addresses(columns: Sequence[Column]) -> tuple[int, ...]:
    return tuple([address for column in columns for address in map(Tensor.data_ptr, column)])


class Memory:
    """What a rule remembers of the tensors of one group."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[int, Fixed] = {}

    def fixed(self, columns: Sequence[Column]) -> Fixed | None:
        """Return what is known of columns that one launch takes, asked anew where they changed."""
        known = self._known.get(len(columns))
        if known is not None and known.still(columns):
            return known
        if not alike(columns):
            return None
        self._known[len(columns)] = Fixed(columns)
        return self._known[len(columns)]
