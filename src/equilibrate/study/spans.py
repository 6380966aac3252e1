"""Neighbouring blocks that measure curvature at the same update share one product.

The more trials a product serves, the better a GPU is used. Every block still draws its own vectors
and folds its own rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from equilibrate.study import nested
from equilibrate.study.blocks import Block, rows
from equilibrate.study.passes import Hessian
from equilibrate.study.stacked_curvature import StackedCurvature

_MANY = 20_000  # probes of a span


@dataclass(frozen=True)
class Span:
    """Neighbours that measure; `since` tells for each the updates since its last probe."""

    blocks: tuple[Block, ...]
    since: tuple[int, ...]

    @property
    def long(self) -> bool:
        """Whether compiling the probing pass should pay.

        On a GPU it takes 10 s or more. Its hundreds of small launches become dozens: by estimate a
        millisecond less at every probe, however few the trials are.
        """
        on_gpu = self.blocks[0].optimizer.device.type == "cuda"
        return on_gpu and max(block.probes for block in self.blocks) >= _MANY

    def of(self, tensor: Tensor) -> Tensor:
        """Return the rows of all its blocks, of a tensor that holds the stack's."""
        return rows(tensor, self.blocks[0].start, self.blocks[-1].stop)

    def part(self, block: Block, tensor: Tensor) -> Tensor:
        """Return one block's rows, of a tensor that holds this span's."""
        first = self.blocks[0].start
        return rows(tensor, block.start - first, block.stop - first)

    def measure(self, hessian: Hessian) -> None:
        """Fold a product of every trial into its diagonal; at the start, those of its warm-up."""
        optimizers = [block.optimizer for block in self.blocks]
        if self.since[0] == 0:
            assert isinstance(optimizers[0], StackedCurvature)
            optimizers[0].warm_up(hessian)
            return
        drawn = [o.draw() for o in optimizers if isinstance(o, StackedCurvature)]
        products, finite = hessian(nested.joined(drawn))
        for block, vectors, since in zip(self.blocks, drawn, self.since, strict=True):
            assert isinstance(block.optimizer, StackedCurvature)
            own = partial(self.part, block)
            block.optimizer.fold(vectors, [own(p) for p in products], own(finite), since)


def spans(blocks: Sequence[Block], due: Sequence[int | None]) -> list[Span]:
    """Return the blocks that measure, neighbours joined; alone for warm-ups, whose lengths vary.

    `due` tells for every block the updates since its last probe, 0 at the start, None between.
    """
    found: list[Span] = []
    for block, since in zip(blocks, due, strict=True):
        if since is None:
            continue
        last = found[-1] if found and since > 0 else None
        if last and last.blocks[-1].stop == block.start:
            found[-1] = Span((*last.blocks, block), (*last.since, since))
        else:
            found.append(Span((block,), (since,)))
    return found
