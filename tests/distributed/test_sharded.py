"""Sharded parameters (FSDP2, tensor parallel) through step(closure) equal unsharded ones."""

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from equilibrate import ESGD, JacobiSGD
from equilibrate.curvature import draw_like
from equilibrate.distributed import draw_part
from tests.distributed.launching import errors, run

pytestmark = [pytest.mark.distributed, pytest.mark.xdist_group("ranks")]

STEPS = 12
DOUBLE = torch.float64
# Both runs take the same differences; what differs is the order in which gradients are added up.
# That is u |g| in a gradient, u / e = u^(2/3) / 1.4 in a product with e = (3u)^(1/3), and some
# hundred times as much after twelve steps.
TOLERANCE = {"rtol": 1e3 * torch.finfo(DOUBLE).eps ** (2 / 3), "atol": 1e-9}


class Network(nn.Module):
    """Odd sizes: the shards are uneven, and the last bias has fewer elements than four ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 8)  # torch cuts this one evenly or not at all
        self.b = nn.Linear(8, 5)
        self.c = nn.Linear(5, 3)

    def forward(self, x):
        return self.c(self.b(self.a(x).tanh()).sin())


def _model():
    torch.manual_seed(0)
    return Network().to(DOUBLE)


def _fsdp(model, world):
    mesh = init_device_mesh("cpu", (world,))
    for layer in (model.a, model.b, model.c):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _root_alone(model, world):
    return fully_shard(model, mesh=init_device_mesh("cpu", (world,)))


def _tensor_parallel(model, world, mesh=None):
    mesh = init_device_mesh("cpu", (world,)) if mesh is None else mesh
    return parallelize_module(model, mesh, {"a": ColwiseParallel(), "b": RowwiseParallel()})


def _both(model, world):
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("data", "tensor"))
    _tensor_parallel(model, world, mesh["tensor"])
    for layer in (model.a, model.b, model.c):
        fully_shard(layer, mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"])


def _hybrid(model, world):
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicas", "shards"))
    return fully_shard(model, mesh=mesh)


def _batch(step, share=slice(None)):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(8, 6, generator=generator, dtype=DOUBLE)
    y = torch.randn(8, 3, generator=generator, dtype=DOUBLE)
    return x[share], y[share]


def _train(model, optimizer, steps, share=slice(None)):
    """With momentum, one loss between two probes is larger: the update is limited there."""
    for step in steps:
        x, y = _batch(step, share)
        jump = 20.0 if step == 7 and optimizer.defaults["momentum"] else 1.0

        def closure(x=x, y=y, jump=jump):
            optimizer.zero_grad()
            loss = jump * (model(x) - y).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)


def _whole(tensors):
    return [t.full_tensor() if isinstance(t, DTensor) else t for t in tensors]


def _result(model, optimizer):
    return _whole(p.detach() for p in model.parameters()), _whole(optimizer.diagonal())


OPTIONS = {"lr": 0.01, "probe_every": 3, "damping": 1e-3}
MOMENTUM = {"momentum": 0.5, "distribution": "gaussian"}


def _sharded(rank, world, cut, kind, options, shares):
    model = cut(_model(), world)
    optimizer = kind(model.parameters(), **OPTIONS | options)
    share = slice(rank * shares // world, None, shares) if shares > 1 else slice(None)
    _train(model, optimizer, range(STEPS), share)
    return _result(model, optimizer)


def _alone(kind=ESGD, options=None, steps=STEPS):
    model = _model()
    optimizer = kind(model.parameters(), **OPTIONS | (options or {}))
    _train(model, optimizer, range(steps))
    return _result(model, optimizer)


# The way of cutting, the ranks, and among how many of them a batch is shared out.
CUTS = [
    (_fsdp, 2, 2),
    (_fsdp, 4, 4),
    (_root_alone, 2, 2),
    (_hybrid, 4, 4),
    (_tensor_parallel, 2, 1),
    (_both, 4, 2),
]


@pytest.mark.parametrize(("cut", "world", "shares"), CUTS, ids=lambda x: getattr(x, "__name__", x))
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ESGD, {}),
        (ESGD, MOMENTUM),
        (JacobiSGD, {"lr": 1e-3, "warmup_probes": 20, "foreach": False}),
    ],
    ids=["esgd", "momentum", "jacobi"],
)
def test_sharded_equals_unsharded(cut, world, shares, kind, options):
    found = run(_sharded, world, cut, kind, options, shares)
    expected = _alone(kind, options)
    for each in found:
        torch.testing.assert_close(each, expected, **TOLERANCE)


def test_the_update_is_limited_where_the_loss_jumps():
    """Else sharded updates would equal unsharded ones whatever they measure."""
    free = _alone(options=MOMENTUM | {"growth_limit": None})[0]
    limited = _alone(options=MOMENTUM)[0]
    assert max(float((a - b).abs().max()) for a, b in zip(free, limited, strict=True)) > 1e-3


class Normed(nn.Module):
    """A norm whose gradient torch leaves as sums that are still to be added up over the ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.a = nn.Linear(6, 8)
        self.b = nn.Linear(8, 6)

    def forward(self, x):
        return self.b(self.a(self.norm(x)).tanh())


def _normed():
    torch.manual_seed(0)
    return Normed().to(DOUBLE)


def _sequence_parallel(model, world):
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "a": ColwiseParallel(input_layouts=Shard(0)),
        "b": RowwiseParallel(),
    }
    return parallelize_module(model, init_device_mesh("cpu", (world,)), plan)


def _train_normed(model, part=slice(None)):
    """The whole output, from this rank's part of the input."""
    optimizer = ESGD(model.parameters(), **OPTIONS)
    for step in range(STEPS):
        x, _ = _batch(step)

        def closure(x=x):
            optimizer.zero_grad()
            loss = (model(x[part]) - x.roll(1, 1)).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    return _result(model, optimizer)


def _sequence_parallel_run(rank, world):
    return _train_normed(_sequence_parallel(_normed(), world), slice(4 * rank, 4 * rank + 4))


def test_sequence_parallel_equals_unsharded():
    expected = _train_normed(_normed())
    for found in run(_sequence_parallel_run, 2):
        torch.testing.assert_close(found, expected, **TOLERANCE)


def _micro_batches(rank, world):
    """Accumulation by closure: all micro-batches inside it, averaged with the last."""
    model = _fsdp(_model(), world)
    optimizer = ESGD(model.parameters(), **OPTIONS)
    for step in range(STEPS):
        x, y = _batch(step, slice(rank, None, world))

        def closure(x=x, y=y):
            optimizer.zero_grad()
            for i in range(2):
                model.set_requires_gradient_sync(i == 1)
                loss = (model(x[i::2]) - y[i::2]).square().mean() / 2
                loss.backward()
            return loss

        optimizer.step(closure)
    return _result(model, optimizer)


def test_micro_batches_inside_the_closure_equal_the_batch():
    for found in run(_micro_batches, 2):
        torch.testing.assert_close(found, _alone(), **TOLERANCE)


def _bfloat16_policy(rank, world):
    model = _model().float()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mp_policy=policy)
    optimizer = ESGD(model.parameters(), lr=0.0)
    x, y = (t.float() for t in _batch(0, slice(rank, None, world)))

    def closure():
        optimizer.zero_grad()
        loss = (model(x).float() - y).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return optimizer.param_groups[0]["difference_step"], _whole(optimizer.diagonal())


def test_computing_in_bfloat16_is_noticed_and_measured_with_a_coarser_step():
    expected = torch.cat([d.flatten() for d in _alone(options={"lr": 0.0}, steps=1)[1]])
    for step, diagonal in run(_bfloat16_policy, 2):
        assert step > 0.01  # float32's own would be 0.0056
        found = torch.cat([d.flatten() for d in diagonal])
        # What the check of the step allows.
        assert (found - expected).norm() < 0.2 * expected.norm()


PLACEMENTS = [
    ((4,), (Shard(0),), (7, 5)),
    ((4,), (Shard(1),), (7, 5)),
    ((4,), (Shard(0),), (3, 5)),  # a rank without any row
    ((4,), (Shard(2),), (2, 3, 130)),
    ((4,), (Shard(0),), (300,)),
    ((4,), (Replicate(),), ()),
    ((2, 2), (Shard(0), Shard(1)), (5, 7)),
    ((2, 2), (Shard(1), Shard(0)), (5, 70)),
    ((2, 2), (Shard(0), Shard(0)), (9, 3)),
    ((2, 2), (Replicate(), Shard(1)), (4, 9)),
]


def _drawn(rank, world, distribution):
    for shape, placements, size in PLACEMENTS:
        mesh = init_device_mesh("cpu", shape)
        whole = torch.zeros(size)
        cut = distribute_tensor(whole, mesh, placements)
        name = {"seed": 3, "probe": 11, "parameter": 2}
        part = draw_part(distribution, cut, **name)
        assert part.placements == cut.placements
        expected = draw_like(distribution, whole, **name)
        torch.testing.assert_close(part.full_tensor(), expected, rtol=0, atol=0)
    model = _both(_model(), world)  # strided shards
    for i, p in enumerate(model.parameters()):
        part = draw_part(distribution, p, seed=3, probe=11, parameter=i)
        expected = draw_like(distribution, p.full_tensor(), seed=3, probe=11, parameter=i)
        torch.testing.assert_close(part.full_tensor(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("distribution", ["rademacher", "gaussian"])
def test_shards_draw_their_part_of_the_whole_vector(distribution):
    run(_drawn, 4, distribution)


def _cut_and_frozen(world, frozen):
    model = _model()
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    return _fsdp(model, world) if world > 1 else model


def _saved(rank, world, folder, until, options, frozen):
    model = _cut_and_frozen(world, frozen)
    optimizer = ESGD(model.parameters(), **OPTIONS | options)
    share = slice(rank, None, world)
    _train(model, optimizer, range(until), share)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)
    _train(model, optimizer, range(until, STEPS), share)
    return _result(model, optimizer)


def _loaded(rank, world, folder, until, options, frozen):
    model = _cut_and_frozen(world, frozen)
    for p in model.parameters():
        p.detach().zero_()
    optimizer = ESGD(model.parameters(), **OPTIONS | options | {"lr": 0.5})  # the saved rate holds
    weights, state = get_state_dict(model, optimizer)
    content = {"model": weights, "optimizer": state}
    dcp.load(content, checkpoint_id=folder)
    set_state_dict(
        model, optimizer, model_state_dict=weights, optim_state_dict=content["optimizer"]
    )
    _train(model, optimizer, range(until, STEPS), slice(rank, None, world))
    return _result(model, optimizer)


# Between two probes, where one is due, where the loss is about to jump, and with frozen parameters.
@pytest.mark.parametrize(
    ("until", "options", "frozen"),
    [(7, {}, ()), (9, {}, ()), (7, MOMENTUM, ()), (7, {}, ("a.weight", "a.bias", "c.bias"))],
)
def test_a_checkpoint_of_two_ranks_goes_on_with_one_two_and_four(until, options, frozen, tmp_path):
    run_of = (str(tmp_path / "saved"), until, options, frozen)
    straight = run(_saved, 2, *run_of)[0]
    for world in (1, 2, 4):
        for found in run(_loaded, world, *run_of):
            exact = {"rtol": 0, "atol": 0}
            torch.testing.assert_close(found, straight, **exact if world == 2 else TOLERANCE)


def _probed(rank, world):
    model = _fsdp(_model(), world)
    optimizer = ESGD(model.parameters())
    x, y = _batch(0)
    optimizer.probe((model(x) - y).square().mean())


def test_probe_on_sharded_parameters_points_to_the_closure():
    for error in errors(_probed, 2):
        assert "sharded" in error
        assert "optimizer.step(closure)" in error


def _not_finite(rank, world):
    """One element of one shard is infinite: every rank drops the whole product."""
    model = _fsdp(_model(), world)
    optimizer = ESGD(model.parameters(), probe_every=1)
    _train(model, optimizer, range(2), slice(rank, None, world))
    before = _whole(optimizer.diagonal())
    products = [torch.ones_like(p) for p in model.parameters()]
    if rank == 1:
        products[0].to_local()[0, 0] = float("inf")
    optimizer.observe([torch.ones_like(p) for p in model.parameters()], products)
    optimizer.step()
    return optimizer.param_groups[0]["dropped_probes"], before, _whole(optimizer.diagonal())


@pytest.mark.filterwarnings("ignore")
def test_a_product_that_is_not_finite_in_one_shard_is_dropped_whole():
    for dropped, before, after in run(_not_finite, 2):
        assert dropped == 1
        torch.testing.assert_close(after, before, rtol=0, atol=0)
