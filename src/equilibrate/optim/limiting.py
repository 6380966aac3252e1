"""Limiting how the update grows (`growth`): what is measured, and where the average is kept."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.distributed import all_plain, over_shards
from equilibrate.kernels import capture
from equilibrate.optim import growth
from equilibrate.optim.device_numbers import to_device
from equilibrate.optim.movement import Movement
from equilibrate.optim.scaler import UnderScaler
from equilibrate.rules import fused


class Limiting(UnderScaler):
    """An optimizer whose momentum takes no update that has outgrown the others."""

    def _growth_factor(self, limited: Sequence[Movement]) -> float | Tensor | None:
        """Return what multiplies the update of all these groups; None stands for one.

        The smallest of their limits holds for all. All their tensors are measured, in a pass over
        gradients and diagonals of its own. The average stays on the device where all of them are
        on one, so that no step waits for it.
        """
        if not limited:
            return None
        allowed = min(movement.group["growth_limit"] for movement in limited)
        elements = max(1, sum(movement.elements for movement in limited))
        squares = [movement.squares() for movement in limited]
        parameters = [p for movement in limited for p in movement.parameters]
        if self._settled or on_one_device(parameters):
            together = squares[0] if len(squares) == 1 else torch.cat(squares)
            return self._factor_on_device(together, elements, allowed)
        mine = [number for each in squares for number in each.tolist()]
        size = math.sqrt(sum(over_shards(parameters, mine)[0]) / elements)
        return self._factor(size, allowed)

    def _factor(self, size: float, allowed: float) -> float | None:
        before = self.param_groups[0]
        mean, count = float(before["update_mean"]), int(before["update_count"])
        factor, mean, count = growth.limit(size, mean, count, allowed)
        for group in self.param_groups:
            group.update(update_mean=mean, update_count=count)
        return factor if factor < 1 else None

    def _factor_on_device(self, squares: Tensor, elements: int, allowed: float) -> Tensor:
        for group in self.param_groups:
            to_device(group, growth.OF_GROUP, squares.device)
        first, *others = self.param_groups
        kept = first["update_mean"], first["update_count"]
        if first["fused"] and capture.runs_kernels(squares.device):
            factor = fused.limit_(squares, elements, *kept, growth=allowed, **growth.NUMBERS)
        else:
            factor = growth.limit_((squares.sum() / elements).sqrt(), *kept, allowed)
        for group in others:
            for name in growth.OF_GROUP:
                group[name].copy_(first[name])
        return factor


def on_one_device(parameters: Sequence[Tensor]) -> bool:
    """Tell whether numbers that are not read back are worth it: all is on one GPU.

    Only there: the average is in double precision, which not every accelerator has.
    """
    devices = {p.device for p in parameters}
    return all_plain(parameters) and len(devices) == 1 and devices.pop().type == "cuda"
