"""The ranks that train one model together, and the few things they tell each other.

Squaring before averaging would be silently wrong: the mean of (H_r v)^2 over ranks r is not
(H v)^2 with H the mean of the H_r. So products are averaged while they are still linear in H.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

_BUCKET = 2**25  # elements averaged at once: what a flat copy of them costs is bounded

_LATE = (
    "{} has measured and waited in vain for {} to do the same. Every rank must call "
    "optimizer.probe(loss) before loss.backward(), or step(closure), in every iteration, and make "
    "equally many steps (DistributedDataParallel.join does not); an error on another rank ends the "
    "wait too. If the models of the ranks are independent, pass process_group=False."
)


def ranks_of(process_group: Any) -> "Ranks | None":
    """Return the ranks of a group, of the world for None; None where this process is alone.

    False declares that the models of the ranks are independent.
    """
    if process_group is False or not dist.is_available() or not dist.is_initialized():
        return None
    if dist.get_world_size(process_group) < 0:
        raise ValueError(
            "This rank is not a member of the given process_group. Pass the group that this "
            "rank trains in, or process_group=False if it trains alone."
        )
    return Ranks(process_group) if dist.get_world_size(process_group) > 1 else None


class Ranks:
    """The members of one process group, as the optimizers talk to them."""

    def __init__(self, process_group: Any) -> None:
        """Take a group; None is the world."""
        self._group: Any = dist.group.WORLD if process_group is None else process_group
        self.size = dist.get_world_size(self._group)
        self.rank = dist.get_rank(self._group)

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the numbers of every rank, in order; each must bring equally many."""
        mine = torch.tensor(numbers, dtype=torch.int64, device=self._device())
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        try:
            dist.all_gather(everyone, mine, group=self._group)
        except RuntimeError as error:
            raise RuntimeError(_LATE.format(f"Rank {self.rank}", "the others")) from error
        found: list[list[int]] = torch.stack(everyone).tolist()
        return found

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """Return, for each flag, whether it is set on any rank."""
        found = torch.tensor(list(flags), dtype=torch.int32, device=self._device())
        dist.all_reduce(found, op=dist.ReduceOp.MAX, group=self._group)
        return [bool(flag) for flag in found.tolist()]

    def mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the mean of each tensor over the ranks, in few collectives."""
        means: list[Tensor] = []
        for bucket in _buckets(tensors):
            flat = torch.cat([t.reshape(-1) for t in bucket])
            dist.all_reduce(flat, group=self._group)
            parts = torch.split(flat.div_(self.size), [t.numel() for t in bucket])
            means += [part.view(t.shape) for part, t in zip(parts, bucket, strict=True)]
        return means

    def mean_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Return the mean of each number over the ranks; each must bring equally many."""
        mine = torch.tensor(numbers, dtype=torch.float64, device=self._device())
        found: list[float] = self.mean([mine])[0].tolist()
        return found

    def announce(self, word: str) -> list[str]:
        """Exchange one word through the store; raise where a rank does not come to say one.

        Unlike a collective this cannot be mistaken for a collective of somebody else, such as
        the averaging of gradients that a rank without probe has gone on to, and ends.
        """
        store = dist.distributed_c10d._get_default_store()
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun may keep the store
        room = f"equilibrate/{attempt}/{self._group.group_name}"
        turn = store.add(f"{room}/turn/{self.rank}", 1)  # counted where the words are kept
        keys = [f"{room}/{turn}/{rank}" for rank in range(self.size)]
        store.set(keys[self.rank], word)
        try:
            store.wait(keys)  # as long as the process group waits
        except RuntimeError as error:
            late = [r for r, key in enumerate(keys) if not store.check([key])]
            raise RuntimeError(_LATE.format(f"Rank {self.rank}", f"rank(s) {late}")) from error
        words = [store.get(key).decode() for key in keys]
        if turn > 1:  # all have come here, so all have read the last round
            store.delete_key(f"{room}/{turn - 1}/{self.rank}")
        return words

    def _device(self) -> torch.device:
        """Return where this group takes small numbers from: the host, if it can."""
        kinds = self._group._device_types
        return kinds[0] if torch.device("cpu") not in kinds else torch.device("cpu")


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Cut a list into runs of one dtype and device, each at most `_BUCKET` elements or one tensor.

    Order is kept.
    """
    bucket: list[Tensor] = []
    for tensor in tensors:
        alike = bucket and (bucket[0].dtype, bucket[0].device) == (tensor.dtype, tensor.device)
        if bucket and (not alike or sum(t.numel() for t in bucket) + tensor.numel() > _BUCKET):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket
