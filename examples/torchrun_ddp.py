r"""DistributedDataParallel under torchrun, with checkpoints that a restart goes on from.

TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 \
torchrun --standalone --nproc-per-node 2 --max-restarts 3 -m examples.torchrun_ddp FOLDER

The variable gives every restart a store of its own: gloo would find the dead ranks' addresses.
"""

import os
import sys
from pathlib import Path

import torch
from torch import distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from equilibrate import ESGD
from examples.problem import BATCH, make_data, make_model, result


def main(folder: Path, save_every: int = 10) -> None:
    """Train on this rank's share of every batch; write the final parameters to the folder."""
    dist.init_process_group("gloo")  # "nccl" on GPUs
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(make_model())
    optimizer = ESGD(model.parameters(), lr=0.02)  # averages over the ranks by itself
    done = 0
    if (folder / "last.pt").exists():
        saved = torch.load(folder / "last.pt", weights_only=True)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["done"]

    data = make_data()
    loader = DataLoader(data, BATCH // world, sampler=DistributedSampler(data, shuffle=False))
    for step, (x, y) in enumerate(loader, start=1):
        if step <= done:
            continue
        loss = mse_loss(model(x), y)
        optimizer.probe(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % save_every == 0 and rank == 0:
            content = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(content | {"done": step}, folder / "new.pt")
            os.replace(folder / "new.pt", folder / "last.pt")  # whole, or not at all

    if rank == 0:
        torch.save(result(model), folder / "final.pt")
        print(f"last loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
