"""The optimizer's numbers on the device: for steps that are captured, or must not wait.

Usually what is counted and summed up for a parameter are plain numbers (`optim.state`). With
`capturable=True`, or `fused=True` on a GPU, they are tensors of one element on the parameter's
device from the first step on, under the same names. A number becomes a tensor only once its
parameter has been measured, so that being a tensor says so.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from equilibrate.diagonals import one_by_one
from equilibrate.kernels.capture import capturing, is_host, number, numbers
from equilibrate.kernels.lists import alike, same, written_out
from equilibrate.optim import damping as damping_rule
from equilibrate.optim import growth, mean_floor
from equilibrate.optim.columns import FIRST_IN_CAPTURE, Held
from equilibrate.optim.damping import check_kind, noise_level
from equilibrate.rules.fused import in_one_order

Group = dict[str, Any]

OF_GROUP = {
    "probe_index": torch.int64,
    "dropped_probes": torch.int64,
    **mean_floor.OF_GROUP,
    **damping_rule.OF_GROUP,
    **growth.OF_GROUP,
}


def to_device(held: dict[str, Any], names: Mapping[str, torch.dtype], device: Any) -> None:
    """Turn plain numbers into tensors on a device, in place."""
    for name, dtype in names.items():
        value = held[name]
        if not isinstance(value, Tensor) or value.device != device or value.dtype != dtype:
            if capturing(device):
                raise RuntimeError(FIRST_IN_CAPTURE)
            held[name] = torch.as_tensor(value, dtype=dtype).to(device, copy=True)


def to_host(held: dict[str, Any], names: Mapping[str, torch.dtype]) -> None:
    """Turn tensors back into plain numbers, in place; the step stays a tensor, as torch has it."""
    for name in names:
        value = held[name]
        if isinstance(value, Tensor) and name != "step":
            if capturing(value.device):
                raise RuntimeError(FIRST_IN_CAPTURE)
            held[name] = int(value) if name == "probed_at" else value.item()
    if "step" in names:
        held["step"] = held["step"].cpu()


def all_fine(tensors: Sequence[Tensor]) -> Tensor:
    """Return, on the device, whether every element is finite; sums that overflow count as not."""
    held = [t for t in tensors if t.numel()]
    if not held:
        return number(True, tensors[0].device, torch.bool)
    # One launch on a GPU; on a CPU the norm is a loop of several passes.
    on_host = is_host(held[0].device)
    sums = [t.sum() for t in held] if on_host else list(torch._foreach_norm(held, 1))
    if len({s.dtype for s in sums}) > 1:
        sums = [s.double() for s in sums]
    return torch.stack(sums).isfinite().all()


def fold(
    kind: ModuleType,
    held: Held,
    contributions: Sequence[Tensor],
    decay: float | None,
    fine: Tensor,
    kernel: Any = None,
) -> None:
    """Average one product into the diagonals of a group, where `fine`, and renew the numbers."""
    step, weight, before = held["step"], held["weight"], held["probed_at"]
    elapsed = (step - before).double()
    kept = weight if decay is None else weight * decay**elapsed
    grown = kept + 1.0
    diagonals = [state["diagonal"] for state in held.states]
    products = laid_out_like(contributions, diagonals)
    run: Any = kernel or one_by_one.fold
    totals, seen = run(kind, diagonals, products, *kind.shares(grown), fine)
    held.write(
        weight=torch.where(fine, grown, weight),
        probes=held["probes"] + fine,
        probed_at=torch.where(fine, step, before),
        scale=totals / seen.clamp_min(1),
        unseen=held.sizes - seen,
    )


def laid_out_like(products: Sequence[Tensor], diagonals: Sequence[Tensor]) -> list[Tensor]:
    """Return products in the dtype and the memory order of the diagonals they enter."""
    products = written_out(products)
    if alike(products, diagonals) and products[0].dtype == diagonals[0].dtype:
        return list(products)
    return [_like(product, d) for product, d in zip(products, diagonals, strict=True)]


def _like(contribution: Tensor, diagonal: Tensor) -> Tensor:
    if contribution.dtype == diagonal.dtype and in_one_order((contribution, diagonal)):
        return contribution
    return torch.empty_like(diagonal).copy_(contribution)


def mean_scale(groups: Sequence[Held]) -> Tensor:
    """Return the mean diagonal over all elements whose curvature was ever seen; zero if none."""
    scale = torch.cat([held["scale"] for held in groups])
    seen = torch.cat([held.sizes - held["unseen"] for held in groups])
    return (scale * seen).sum() / seen.sum().clamp_min(1)


class Damped:
    """Damping and fill of a group's tensors on the device, kept at one place for captured graphs.

    As `optim.damping`, with tensors: renewed in place by every fold, read by every step.
    """

    def __init__(self, held: Held, asked: tuple[float, str]) -> None:
        """Make room for the numbers of these parameters; `asked` are damping and its kind."""
        device = held.parameters[0].device
        if capturing(device):
            raise RuntimeError(FIRST_IN_CAPTURE)
        check_kind(asked[1])
        self._asked, self._held = asked, held
        levels = [noise_level(state["diagonal"].dtype) for state in held.states]
        self.noise = numbers(levels, device)
        self.damping = torch.zeros(len(levels), dtype=torch.float64, device=device)
        self.fill = torch.zeros_like(self.damping)

    def is_for(self, held: Held, asked: tuple[float, str]) -> bool:
        """Tell whether it was made for these parameters and this damping."""
        return self._asked == asked and same(held.parameters, self._held.parameters)

    def renew(self, group: Group) -> None:
        """Compute the numbers from what was last folded."""
        if group["damping_kind"] == "absolute":
            self.damping.fill_(group["damping"])
            self.fill.zero_()
            return
        own, mean, share = self._held["scale"], group["mean_scale"], group["damping"]
        first = torch.where(group["initial_scale"] == 0, mean, group["initial_scale"])
        initial = group["damping_kind"] == "initial"
        of_own, of_all = (first, first) if initial else (own, mean)
        clear = own > self.noise * mean
        self.damping.copy_(torch.where(clear, share * of_own, share * of_all + mean))
        self.fill.copy_(torch.where(clear & (self._held["unseen"] > 0), own, 0.0))
