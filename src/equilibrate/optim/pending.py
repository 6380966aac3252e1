"""The pending product: what the losses of one step have contributed and no step has folded yet.

It is to the diagonal what `.grad` is to the parameter, and like `.grad` it is not saved.
"""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from equilibrate.kernels.lists import same
from equilibrate.optim.state import wide, widened


class Pending:
    """Contributions summed over the losses of one step, by parameter."""

    def __init__(self) -> None:
        """Start with nothing pending."""
        self.sums: dict[Tensor, Tensor] = {}
        self.asked: dict[Tensor, None] = {}  # an ordered set: all that were measured, absent or not
        self.vectors: list[Tensor | None] | None = None  # of `observe`, one set for the whole step
        self.versions: list[int | None] = []  # of the vectors: a user may draw into them anew
        self.averaged = False  # over ranks already, as differences of averaged gradients are

    def __bool__(self) -> bool:
        """Tell whether anything waits to be folded."""
        return bool(self.asked)

    def add(self, asked: Iterable[Tensor], contributions: Mapping[Tensor, Tensor]) -> None:
        """Add one loss's contributions; it does not depend on what was asked for and is missing."""
        self.asked |= dict.fromkeys(asked)
        entering = dict(contributions)  # a copy asks no tensor for its hash, which takes a while
        if any(c.dtype != wide(c.dtype) for c in entering.values()):
            entering = {p: widened(c, c.dtype) for p, c in entering.items()}
        twice = self.sums.keys() & entering if self.sums else ()
        self.sums |= entering | {p: self.sums[p] + entering[p] for p in twice}

    def holds(self, parameters: Sequence[Tensor]) -> bool:
        """Tell whether all of these were measured."""
        asked = self.asked
        return same(list(asked), parameters) or all(map(asked.__contains__, parameters))
