"""The monitor among ranks: one measures, nobody waits, nothing drifts; shards are refused."""

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from equilibrate import ESGD, hessian
from equilibrate.monitor import Monitor
from tests.distributed.launching import errors, run
from tests.distributed.test_ddp import batches, even_shares, model_of

pytestmark = [pytest.mark.distributed, pytest.mark.xdist_group("ranks")]

STEPS = 8
OPTIMIZERS = {
    "esgd": lambda p: ESGD(p, lr=0.01, probe_every=3),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}
WAYS = {
    "plain": {},
    "static graph": {"static_graph": True},
    "unused parameters": {"find_unused_parameters": True},
    "bucket views": {"gradient_as_bucket_view": True},
}


def _trained(rank, world, name, ddp, options):
    """Parameters after some steps on this rank's share of each batch, and the records seen."""
    model = DistributedDataParallel(model_of(), **ddp)
    optimizer = OPTIMIZERS[name](model.parameters())
    seen = []
    if options is not None:
        monitor = Monitor(model, optimizer, seen.append, every=1, budget=None, **options)
    for x, y in batches(STEPS):
        share = even_shares(len(x), world)[rank]
        loss = (model(x[share]) - y[share]).square().mean()
        if hasattr(optimizer, "probe"):
            optimizer.probe(loss)
        if options is not None:
            monitor(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()], seen


def with_and_without(rank, world, name, ddp, options):
    alone, _ = _trained(rank, world, name, ddp, None)
    watched, seen = _trained(rank, world, name, ddp, options)
    return alone, watched, seen


@pytest.mark.parametrize("ddp", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rank_0_measures_and_no_rank_drifts(name, ddp):
    found = run(with_and_without, 2, name, ddp, {"layer_spectra": 1})
    for alone, watched, _ in found:
        assert all(map(torch.equal, alone, watched))
    assert all(map(torch.equal, found[0][1], found[1][1]))
    records = [seen for _, _, seen in found]
    assert [record["step"] for record in records[0]] == list(range(STEPS))
    assert all("sharpness" in record for record in records[0])
    assert records[1] == []


CHOICES = {"another": (1, [0, STEPS]), "every one": (None, [STEPS, STEPS])}


@pytest.mark.parametrize(("rank", "counts"), CHOICES.values(), ids=CHOICES.keys())
def test_another_rank_or_every_one_by_itself(rank, counts):
    found = run(with_and_without, 2, "esgd", {}, {"rank": rank})
    assert [len(seen) for _, _, seen in found] == counts
    assert all(all(map(torch.equal, alone, watched)) for alone, watched, _ in found)
    if rank is None:
        assert found[0][2][0]["loss"] != found[1][2][0]["loss"]  # each its own batch


def test_what_rank_0_shows_is_the_hessian_of_its_own_batch():
    record = run(with_and_without, 2, "esgd", {}, {"steps": 200, "layer_spectra": 99})[0][2][0]
    model = model_of()
    x, y = (part[even_shares(len(part), 2)[0]] for part in batches(1)[0])
    parameters = list(model.parameters())
    matrix = hessian((model(x) - y).square().mean(), parameters)
    values = torch.linalg.eigvalsh((matrix + matrix.mT) / 2)
    assert record["sharpness"] == pytest.approx(float(values[-1]), rel=1e-9)
    assert record["smallest"] == pytest.approx(float(values[0]), rel=1e-9)
    first = matrix[:48, :48]
    sharpness = float(torch.linalg.eigvalsh((first + first.mT) / 2)[-1])
    told = record["layers/module.trunk.weight/sharpness"]
    assert told == pytest.approx(sharpness, rel=1e-9)


def sharded(rank, world, how):
    model, mesh = model_of(), init_device_mesh("cpu", (world,))
    if how == "fully_shard":
        fully_shard(model, mesh=mesh)
    else:
        plan = {"trunk": ColwiseParallel(), "first": RowwiseParallel()}
        parallelize_module(model, mesh, plan)
    optimizer = ESGD(model.parameters())
    Monitor(model, optimizer, lambda record: None)


@pytest.mark.parametrize("how", ["fully_shard", "tensor parallel"])
def test_sharded_parameters_are_refused_on_every_rank_before_training(how):
    for text in errors(sharded, 2, how):
        assert text.startswith("ValueError: The parameters are sharded")
        assert "equilibrate inspect" in text
