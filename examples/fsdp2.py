"""Parameters sharded by `fully_shard` (FSDP2): no second derivatives there, so pass a closure.

torchrun --nproc-per-node 2 -m examples.fsdp2 FOLDER
"""

import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch import distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler

from equilibrate import ESGD
from examples.problem import BATCH, make_data, make_model, result


def main(folder: Path) -> None:
    """Train on this rank's share of every batch; save a checkpoint and the final parameters."""
    dist.init_process_group("gloo")  # "nccl" on GPUs
    model = make_model()
    for layer in (model[0], model[2]):
        fully_shard(layer)
    fully_shard(model)
    optimizer = ESGD(model.parameters(), lr=0.02)  # after sharding, as for any optimizer

    data = make_data()
    sampler = DistributedSampler(data, shuffle=False)
    for x, y in DataLoader(data, BATCH // dist.get_world_size(), sampler=sampler):

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            optimizer.zero_grad()
            loss = mse_loss(model(x), y)
            loss.backward()
            return loss

        loss = optimizer.step(closure)

    weights, state = get_state_dict(model, optimizer)  # loads on any number of ranks
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder / "checkpoint")
    whole = result(model)
    if dist.get_rank() == 0:
        torch.save(whole, folder / "final.pt")
        print(f"last loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
