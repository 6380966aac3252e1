"""What the finalists have learned of one picture: their fields, trained once more and recorded.

Recorded is what is wrong with a field, the output minus the target, in half precision: the target
can be drawn again. Of large fields every second pixel, or fewer, is drawn and published.
"""

import base64
import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from equilibrate.paper.records import Data
from equilibrate.wins.arena import Arena, Job, trainer
from equilibrate.wins.fight import Result

MOST = 128  # pixels on a side


def faults(result: Result, schedule: str, arena: Arena) -> dict[str, Tensor]:
    """Return output minus target of every fighter on the first instance of the finals, [n, n]."""
    return {f: unpacked(_fault(result, f, schedule, arena)) for f in result.task.fighters}


def _fault(result: Result, fighter: str, schedule: str, arena: Arena) -> str:
    instance, rate = int(result.finals[fighter][0]["instance"]), result.best[fighter]
    job = Job(result.task, fighter, instance, (rate,), schedule)
    settings = {"task": result.task.name, "epochs": result.task.epochs, "fighter": fighter,
                "instance": instance, "settings": job.settings(rate)}  # fmt: skip
    record, _ = arena.store.get("picture", settings, lambda: _train(job, arena))
    return str(record["data"]["fault"])


def target(result: Result) -> Tensor:
    """Return the picture that was to be learned, [n, n]."""
    instance = int(next(iter(result.finals.values()))[0]["instance"])
    return _square(result.task.problem(instance).cases[1])


def thinned(picture: Tensor) -> Tensor:
    """Return every so many pixels of a square picture, `MOST` on a side at most.

    Example:
        >>> thinned(torch.zeros(256, 256)).shape, thinned(torch.zeros(64, 64)).shape
        (torch.Size([128, 128]), torch.Size([64, 64]))
    """
    step = -(-len(picture) // MOST)
    return picture[::step, ::step]


def packed(picture: Tensor) -> str:
    """Return a square picture as text.

    Example:
        >>> bool(torch.equal(unpacked(packed(torch.eye(3))), torch.eye(3)))
        True
    """
    half = bytes(picture.to(torch.float16).flatten().view(torch.uint8).tolist())
    return base64.b64encode(zlib.compress(half, 9)).decode()


def unpacked(text: str) -> Tensor:
    """Return the picture of a text."""
    data = bytearray(zlib.decompress(base64.b64decode(text)))
    return _square(torch.frombuffer(data, dtype=torch.float16).float())


def _train(job: Job, arena: Arena) -> Data:
    one = trainer(job, job.rates[0], arena.device)
    one.advance(job.task.epochs * job.task.updates_per_epoch)
    outputs: Sequence[Tensor] = []
    with torch.no_grad():
        outputs = [one.network(x) for x in torch.split(one.data[0], 8192)]
    return {"fault": packed(_square((torch.cat(list(outputs)) - one.data[1]).cpu()))}


def _square(values: Tensor) -> Tensor:
    side = round(values.numel() ** 0.5)
    return values.reshape(side, side)
