"""Lists of tensors: whether two hold the same ones, and whether one launch takes them all.

All are asked in every step, about a hundred tensors and more: on a GPU the host that asks is what
a step of many small tensors waits for.
"""

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter, is_
from typing import Any, NamedTuple

from torch import Tensor

_MOST = 512  # sets of tensors that are remembered: a group is one

_bytes, _kind = attrgetter("nbytes"), attrgetter("dtype")

Addresses = tuple[int, ...]


class Places(NamedTuple):
    """Where the tensors of a launch lie: gradients, and what stays from step to step."""

    sizes: tuple[int, ...]  # the number of elements, by row
    gradients: Addresses
    kept: tuple[Addresses, ...]  # by column: diagonals, then parameters and buffers if they move
    together: Addresses  # the same in one row, one column after the other


class _Rows(NamedTuple):
    """What was found out of tensors that stay, the last time that they were looked at whole."""

    kinds: list[Any]  # shapes of the rows, dtypes of all, bytes of what stays: one list
    places: Places  # with the gradients of that time


_rows: dict[tuple[Addresses, ...], _Rows] = {}  # by where the tensors lie, column by column


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


def addresses(tensors: Sequence[Tensor]) -> Addresses:
    """Return where tensors begin."""
    return tuple(map(Tensor.data_ptr, tensors))


def places_of(gradients: Sequence[Tensor], *columns: Sequence[Tensor]) -> Places:
    """Return where gradients lie, and the other columns."""
    sizes, kept = tuple(map(Tensor.numel, gradients)), tuple(map(addresses, columns))
    return Places(sizes, addresses(gradients), kept, sum(kept, ()))


def places_at_once(gradients: Sequence[Tensor], *columns: Sequence[Tensor]) -> Places | None:
    """Return where tensors lie, if they are `alike` and the gradients `written_out`.

    Gradients are new in every step, and looked at whole. Of the others it is remembered that they
    were alike, for as long as they fill the same bytes without gaps: to a kernel, which walks
    through memory, they are the same then. Addresses alone would not tell: what is transposed,
    or cut short, begins where it began.

    Example:
        >>> import torch
        >>> places_at_once([torch.zeros(2, 3)], [torch.zeros(2, 3)]).sizes
        (6,)
        >>> places_at_once([torch.zeros(2, 3)], [torch.zeros(3, 2)])
    """
    kept = [*chain(*columns)]
    everything = [*kept, *gradients]
    if not all(map(Tensor.is_contiguous, everything)) or any(map(Tensor.is_neg, gradients)):
        return None
    kinds = [*map(Tensor.size, gradients), *map(_kind, everything), *map(_bytes, kept)]
    where = tuple(map(addresses, columns))
    known = _rows.get(where)
    if known is None or known.kinds != kinds:
        if not alike(gradients, *columns):
            return None
        known = _remembered(where, _Rows(kinds, places_of(gradients, *columns)))
    sizes, _, by_column, together = known.places  # the same tuples always: compared at once
    return Places(sizes, addresses(gradients), by_column, together)


def _remembered(where: tuple[Addresses, ...], rows: _Rows) -> _Rows:
    _rows.pop(where, None)  # so that it counts as the last that came
    _rows[where] = rows
    if len(_rows) > _MOST:
        _rows.pop(next(iter(_rows)), None)  # the first that came
    return rows


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
