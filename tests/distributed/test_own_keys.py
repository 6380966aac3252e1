"""What a user keeps in a group besides the hyper-parameters: ranks do not compare it."""

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from equilibrate import ESGD
from tests.distributed.launching import run
from tests.distributed.test_agreement import _iteration
from tests.distributed.test_ddp import model_of

pytestmark = [pytest.mark.distributed, pytest.mark.xdist_group("ranks")]

EXTRAS = {
    "a tensor": lambda rank: torch.ones(3),
    "a tensor that differs": lambda rank: torch.full((), rank),
    "an object at an address": lambda rank: [object() for _ in range(1 + 50 * rank)][-1],
}


def _extra_key(rank, world, name):
    model = DistributedDataParallel(model_of())
    group = {"params": list(model.parameters()), "mine": EXTRAS[name](rank)}
    optimizer = ESGD([group], probe_every=2)
    for step in range(3):
        _iteration(model, optimizer, rank, step)
    return [p.detach() for p in model.parameters()], optimizer.diagonal()


@pytest.mark.parametrize("name", EXTRAS)
def test_what_a_user_keeps_in_a_group_is_each_ranks_own(name):
    first, second = run(_extra_key, 2, name)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
