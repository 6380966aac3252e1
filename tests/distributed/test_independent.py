"""Ranks with models of their own: process_group=False; and a world of one rank."""

import pytest
import torch

from equilibrate import ESGD
from tests.distributed.launching import run


def _own_model(rank, world):
    weight = torch.full((3,), float(rank + 1), requires_grad=True)
    optimizer = ESGD([weight], process_group=False)
    loss = (weight**4).sum()
    optimizer.probe(loss)
    loss.backward()
    optimizer.step()
    return optimizer.diagonal()[0]


@pytest.mark.distributed
@pytest.mark.xdist_group("ranks")
def test_independent_ranks_measure_their_own_curvature():
    for rank, found in enumerate(run(_own_model, 2)):
        torch.testing.assert_close(found, torch.full((3,), 12.0 * (rank + 1) ** 2))


def test_one_rank_is_one_process(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        weight = torch.ones(2, requires_grad=True)
        assert ESGD([weight]).probe((weight**4).sum())
    finally:
        torch.distributed.destroy_process_group()
