"""The trainers' examples among several ranks: run by torchrun, with what to run and where to."""

import sys
from pathlib import Path

import torch
from torch import distributed as dist

from examples import accelerate_loop, huggingface_trainer, lightning_module
from examples.problem import result


def _trainer(folder: Path) -> list[torch.Tensor]:
    options = {"output_dir": str(folder), "use_cpu": True, "disable_tqdm": True}
    return result(huggingface_trainer.main(**options, per_device_train_batch_size=8))


RUN = {
    "accelerate": lambda folder: accelerate_loop.main(),
    "lightning": lambda folder: lightning_module.main(devices=2, strategy="ddp"),
    "trainer": _trainer,
}

if __name__ == "__main__":
    found = RUN[sys.argv[1]](Path(sys.argv[2]))
    torch.save(found, Path(sys.argv[2]) / f"final-{dist.get_rank()}.pt")
    dist.barrier()
