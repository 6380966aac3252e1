"""The numbers around a fold, in two launches: `optim.device_numbers` for all parameters of a group.

As plain operations on small tensors they are some forty launches, and on a small network the host
that launches them is what a probe waits for. All is in double precision.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from equilibrate.kernels.capture import number

_BLOCK = 1024


class Shares(NamedTuple):
    """Whether a product may be folded; the total weights then; the factors on old and new."""

    fine: Tensor
    grown: Tensor
    old: Tensor
    new: Tensor


def shares(
    norms: Tensor, step: Tensor, probed_at: Tensor, weight: Tensor, *, decay: float | None,
    roots: bool,
) -> Shares:  # fmt: skip
    """Return how the products of these norms enter: W <- decay^steps W + 1, and `kind.shares`."""
    device = weight.device
    grown, old, new = torch.empty((3, len(weight)), dtype=torch.float64, device=device).unbind()
    fine = torch.empty((), dtype=torch.bool, device=device)
    log = number(0.0 if decay is None else math.log(decay), device)
    _shares[(1,)](
        norms, step, probed_at, weight, log, fine, grown, old, new, len(weight), ROOTS=roots,
        BLOCK=_BLOCK,
    )  # fmt: skip
    return Shares(fine, grown, old, new)


@triton.jit(do_not_specialize=["count"])
def _shares(
    norms, step, probed_at, weight, log_decay, fine, grown, old, new, count, ROOTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    log = tl.load(log_decay)
    wrong, start = 0, 0
    while start < count:
        place = start + tl.arange(0, BLOCK)
        inside = place < count
        norm = tl.load(norms + place, inside, 0.0)
        wrong += tl.sum((norm - norm != 0).to(tl.int32))  # neither infinite nor not a number
        steps = tl.load(step + place, inside, 0.0) - tl.load(probed_at + place, inside, 0.0)
        kept = tl.load(weight + place, inside, 1.0) * tl.exp(steps.to(tl.float64) * log)
        total = kept + 1
        share = 1 / total
        tl.store(grown + place, total, inside)
        tl.store(old + place, tl.sqrt(1 - share) if ROOTS else 1 - share, inside)
        tl.store(new + place, tl.sqrt(share) if ROOTS else share, inside)
        start += BLOCK
    tl.store(fine, wrong == 0)


class Kept(NamedTuple):
    """What is renewed in place: five numbers of every parameter, four of their group."""

    weight: Tensor
    probes: Tensor
    probed_at: Tensor
    scale: Tensor
    unseen: Tensor
    mean: Tensor
    initial: Tensor
    probe_index: Tensor
    dropped: Tensor


class Divisor(NamedTuple):
    """What a step adds to the diagonals, renewed in place; `share` is None where it is absolute.

    It is a share of each tensor's mean as it is now, or of the `initial` one.
    """

    share: float | None
    initial: bool
    noise: Tensor
    damping: Tensor
    fill: Tensor


def renew_(
    kept: Kept, divisor: Divisor, found: Shares, step: Tensor, sizes: Tensor, totals: Tensor,
    seen: Tensor,
) -> None:  # fmt: skip
    """Renew the numbers after a fold that summed |D| up to `totals`, over `seen` elements each."""
    share = 0.0 if divisor.share is None else divisor.share
    _renew[(1,)](
        *kept, divisor.noise, divisor.damping, divisor.fill, number(share, step.device),
        found.fine, found.grown, step, sizes, totals, seen, len(sizes),
        SHARED=divisor.share is not None, INITIAL=divisor.initial, BLOCK=_BLOCK,
    )  # fmt: skip


@triton.jit(do_not_specialize=["count"])
def _renew(
    weight, probes, probed_at, scale, unseen, mean, initial, probe_index, dropped, noise, damping,
    fill, share, fine, grown, step, sizes, totals, seen, count, SHARED: tl.constexpr,
    INITIAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    ok = tl.load(fine) != 0
    everything = tl.zeros((BLOCK,), tl.float64)
    elements = tl.zeros((BLOCK,), tl.int64)
    start = 0
    while start < count:
        place = start + tl.arange(0, BLOCK)
        inside = place < count
        number = tl.load(seen + place, inside, 0)
        own = tl.load(totals + place, inside, 0.0) / tl.maximum(number, 1)
        everything += own * number
        elements += number
        tl.store(scale + place, own, inside)
        tl.store(unseen + place, tl.load(sizes + place, inside, 0) - number, inside)
        if ok:
            tl.store(weight + place, tl.load(grown + place, inside), inside)
            tl.store(probes + place, tl.load(probes + place, inside) + 1, inside)
            tl.store(probed_at + place, tl.load(step + place, inside), inside)
        start += BLOCK
    middle = tl.sum(everything) / tl.maximum(tl.sum(elements), 1)
    first = tl.load(initial)
    first = tl.where(first == 0, middle, first)  # the first curvature that is seen
    tl.store(mean, middle)
    tl.store(initial, first)
    tl.store(probe_index, tl.load(probe_index) + 1)
    tl.store(dropped, tl.load(dropped) + (1 - ok.to(tl.int64)))
    if SHARED:
        part, start = tl.load(share), 0
        while start < count:
            place = start + tl.arange(0, BLOCK)
            inside = place < count
            number = tl.load(seen + place, inside, 0)
            own = tl.load(totals + place, inside, 0.0) / tl.maximum(number, 1)
            clear = own > tl.load(noise + place, inside, 0.0) * middle
            missing = number < tl.load(sizes + place, inside, 0)
            of_own = first if INITIAL else own
            of_all = first if INITIAL else middle
            added = tl.where(clear, part * of_own, part * of_all + middle)
            tl.store(damping + place, added, inside)
            tl.store(fill + place, tl.where(clear & missing, own, 0.0), inside)
            start += BLOCK
