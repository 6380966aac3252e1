"""Several ranks: refused clearly before the first step, unless their models are independent."""

import os
import tempfile

import pytest
import torch
import torch.multiprocessing as processes

from equilibrate import ESGD


def _rank(rank: int, folder: str) -> None:
    store = f"file://{os.path.join(folder, 'store')}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    weight = torch.full((3,), float(rank + 1), requires_grad=True)
    with pytest.raises(NotImplementedError, match="process_group=False"):
        ESGD([weight])
    optimizer = ESGD([weight], process_group=False)
    loss = (weight**4).sum()
    optimizer.probe(loss)
    loss.backward()
    optimizer.step()
    expected = torch.full((3,), 12.0 * (rank + 1) ** 2)  # each rank's own curvature
    torch.testing.assert_close(optimizer.diagonal()[0], expected)
    torch.distributed.destroy_process_group()


@pytest.mark.distributed
def test_two_ranks_are_refused_unless_independent():
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(_rank, args=(folder,), nprocs=2)


def test_one_rank_is_one_process(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        ESGD([torch.ones(2, requires_grad=True)])
    finally:
        torch.distributed.destroy_process_group()
