"""The loops on an accelerator: float16, attention kernels, cuDNN, Inductor, ranks on one device."""

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from equilibrate import ESGD, math_attention
from tests.distributed.launching import run
from tests.distributed.test_ddp import batches, model_of
from tests.optim.loops import train, train_by_closure
from tests.optim.test_attention import Attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]


def _problem():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 3)).cuda()
    data, target = torch.randn(32, 10).cuda(), torch.randn(32, 3).cuda()
    return model, lambda: (model(data).float() - target).square().mean() * 1e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_takes_the_path_of_float32(dtype):
    ends = []
    for half in (True, False):
        model, loss = _problem()
        start = torch.cat([p.detach().flatten() for p in model.parameters()])
        optimizer = ESGD(model.parameters(), probe_every=5)
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**12, enabled=dtype == torch.float16)
        for _ in range(30):
            with torch.autocast("cuda", dtype, enabled=half):
                value = loss()
            optimizer.probe(value)
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]) - start)
    assert (ends[0] - ends[1]).norm() < 30 * torch.finfo(dtype).eps * ends[1].norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_is_measured_by_the_math_kernel(dtype):
    torch.manual_seed(0)
    model = Attention().cuda().to(dtype)
    x = torch.randn(4, 64, 8, device="cuda", dtype=dtype)
    optimizer = ESGD(model.parameters(), probe_every=4)
    for _ in range(9):
        with math_attention(optimizer):
            loss = (model(x) - x.roll(1, 1)).float().square().mean()
        optimizer.probe(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(d.isfinite().all() for d in optimizer.diagonal())


def test_cudnn_recurrence_is_explained_and_works_without_cudnn():
    torch.manual_seed(0)
    model = nn.LSTM(4, 6).cuda()
    x = torch.randn(5, 3, 4, device="cuda")
    optimizer = ESGD(model.parameters())
    with pytest.raises(RuntimeError, match=r"optimizer\.step\(closure\)"):
        optimizer.probe(model(x)[0].square().mean())
    with torch.backends.cudnn.flags(enabled=False):
        assert optimizer.probe(model(x)[0].square().mean())


def test_a_compiled_model_trains_by_closure():
    ends = []
    for compiled in (True, False):
        model, loss = _problem()
        run_loss = torch.compile(loss) if compiled else loss
        train_by_closure(ESGD(model.parameters(), probe_every=5), run_loss, 12)
        ends.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(*ends, rtol=1e-3, atol=1e-5)


def _two_ranks_on_one_device(rank, world):
    model = DistributedDataParallel(model_of().cuda())
    optimizer = ESGD(model.parameters(), probe_every=5)
    for x, y in batches(20):
        loss = (model(x[rank::2].cuda()) - y[rank::2].cuda()).square().mean()
        optimizer.probe(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().cpu() for p in model.parameters()]


@pytest.mark.distributed
def test_ranks_on_one_device_equal_one_process():
    """With gloo: NCCL wants a device for every rank."""
    first, second = run(_two_ranks_on_one_device, 2)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    model = model_of().cuda()
    steps = iter(batches(20))

    def loss():
        x, y = next(steps)
        return (model(x.cuda()) - y.cuda()).square().mean()

    train(ESGD(model.parameters(), probe_every=5), loss, 20)
    found = [p.detach().cpu() for p in model.parameters()]
    torch.testing.assert_close(first, found, rtol=1e-6, atol=1e-9)


@pytest.fixture
def nccl():
    """One rank on NCCL: all that one device allows, but the collectives are NCCL's own."""
    torch.distributed.init_process_group(
        "nccl", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


def _ended(model, optimizer_of, trained):
    wrapped = trained(model)
    data, target = (tensor.cuda() for tensor in batches(1)[0])
    train_by_closure(
        optimizer_of(wrapped.parameters()), lambda: (wrapped(data) - target).square().mean(), 12
    )
    found = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return [p.detach().clone() for p in found]


@pytest.mark.parametrize("wrap", [DistributedDataParallel, fully_shard], ids=["ddp", "fsdp2"])
def test_one_rank_on_nccl_equals_the_plain_model(nccl, wrap):
    def optimizer_of(parameters):
        return ESGD(parameters, probe_every=5)

    plain = _ended(model_of().cuda(), optimizer_of, lambda model: model)
    wrapped = _ended(model_of().cuda(), optimizer_of, wrap)
    torch.testing.assert_close(wrapped, plain, rtol=1e-6, atol=1e-9)
