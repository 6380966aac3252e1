"""The Triton kernels against the plain functions they replace.

They run on a GPU; where triton is installed without one, TRITON_INTERPRET=1 runs them on the CPU:

    TRITON_INTERPRET=1 python -m pytest tests/kernels
"""

from functools import partial

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from equilibrate.curvature import draw_like
from equilibrate.diagonals import equilibration, jacobi
from equilibrate.kernels import capture
from equilibrate.optim import growth
from equilibrate.rules import fused, on_device
from tests.kernels.device import DEVICE, RUNS_KERNELS, SHAPES, random
from tests.optim.loops import train

pytest.importorskip("triton")
pytestmark = RUNS_KERNELS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("seed", "probe"), [(0, 0), (3, 7), (2**62, 123_456), (-5, 1)])
def test_signs_are_those_of_the_plain_function(dtype, seed, probe):
    from equilibrate.curvature.fused import draw_signs

    likes = [random(shape, dtype) for shape in [*SHAPES[:7], (0,)]]
    numbers = [2, 3, 5, 7, 11, 13, 14, 15]
    for given in (probe, torch.tensor(probe, device=DEVICE)):
        found = draw_signs(likes, numbers, seed=seed, probe=given)
        for like, number, part in zip(likes, numbers, found, strict=True):
            plain = draw_like("rademacher", like, seed=seed, probe=probe, parameter=number)
            assert torch.equal(part, plain)
            assert part.dtype == dtype


@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
@pytest.mark.parametrize("capturable", [False, True])
def test_a_training_with_kernels_takes_the_plain_path(kind, capturable, monkeypatch):
    """All three kernels in the place of plain functions: several dtypes, layouts and groups."""
    monkeypatch.setattr(capture, "runs_kernels", lambda device: True)
    ends = []
    for options in ({}, {"fused": True, "capturable": capturable}):
        torch.manual_seed(0)
        layers = nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(48, 5).double()
        model = nn.Sequential(*layers).to(DEVICE)
        layers[0].to(memory_format=torch.channels_last)
        x = torch.randn(4, 2, 6, 6).to(DEVICE)
        empty = nn.Parameter(torch.zeros(0, device=DEVICE))
        groups = [{"params": [*layers[0].parameters(), empty], "momentum": 0.9}]
        groups += [{"params": layers[2].parameters(), "probe_every": 3, "weight_decay": 0.1}]
        optimizer = kind(groups, **{"lr": 0.01, "probe_every": 2, "warmup_probes": 3} | options)

        def loss(layers=layers, x=x):
            inner = layers[1](torch.tanh(layers[0](x)))
            return layers[2](inner.double()).square().mean()

        train(optimizer, loss, 8)
        ends.append([p.detach() for p in model.parameters()])
    for found, plain in zip(*ends, strict=True):
        torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [equilibration, jacobi], ids=lambda kind: kind.__name__[-8:])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_fold_is_the_plain_fold_and_sums_up(kind, dtype):
    from equilibrate.diagonals.fused import fold

    shapes = [*SHAPES, (0,)]
    diagonals = [random(s, dtype).abs() * (random(s) > 0) for s in shapes]
    products = [random(s, dtype) * (random(s) > 0) for s in shapes]
    weights = (torch.rand(len(shapes), dtype=torch.float64) * 3 + 1).to(DEVICE)
    own = [d.clone() for d in diagonals]
    fine = torch.tensor(True, device=DEVICE)
    totals, counts = fold(kind, own, products, *kind.shares(weights), fine)
    for d, product, weight in zip(diagonals, products, weights.tolist(), strict=True):
        kind.fold_(d, product, weight)
    torch.testing.assert_close(own, diagonals, rtol=8 * torch.finfo(dtype).eps, atol=1e-7)
    for i, d in enumerate(own):
        assert float(totals[i]) == pytest.approx(float(d.double().abs().sum()), rel=1e-5)
        assert int(counts[i]) == int(d.count_nonzero())


def test_a_product_that_is_not_finite_changes_nothing():
    from equilibrate.diagonals.fused import fold

    diagonals = [random(s).abs() for s in SHAPES]
    products = [torch.full_like(d, float("nan")) for d in diagonals]
    before = [d.clone() for d in diagonals]
    weights = torch.full((len(SHAPES),), 2.0, dtype=torch.float64, device=DEVICE)
    shares = equilibration.shares(weights)
    totals, _ = fold(
        equilibration, diagonals, products, *shares, torch.tensor(False, device=DEVICE)
    )
    assert all(map(torch.equal, diagonals, before))
    assert float(totals[0]) == pytest.approx(float(before[0].sum()), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("scale", [None, 0.37])
@pytest.mark.parametrize("shift", [0, 1], ids=["aligned", "not aligned"])
def test_an_update_is_the_plain_update(dtype, momentum, scale, shift):
    wide = torch.promote_types(dtype, torch.float32)

    def tensors(kind):
        whole = [random(torch.Size(s).numel() + shift, kind)[shift:].view(s) for s in SHAPES]
        return whole

    parameters, gradients = tensors(dtype), tensors(dtype)
    diagonals = [d.clamp_min(-0.3) + 0.3 for d in tensors(wide)]
    buffers = tensors(wide) if momentum else None
    number = lambda x: torch.tensor(x, dtype=torch.float64, device=DEVICE)  # noqa: E731
    options = {
        "lr": number(0.02), "damping": torch.rand(len(SHAPES)).double().to(DEVICE),
        "fill": torch.rand(len(SHAPES)).double().to(DEVICE), "maximize": False,
        "momentum": number(momentum) if momentum else None, "nesterov": momentum > 0,
        "weight_decay": number(0.1), "scale": None if scale is None else number(scale),
    }  # fmt: skip
    results, steps = [], torch.arange(float(len(SHAPES))).to(DEVICE)
    for rule in (on_device.step, partial(fused.triton_kernels().step, steps=steps)):
        own = [p.clone() for p in parameters]
        kept = None if buffers is None else [b.clone() for b in buffers]
        rule(own, gradients, diagonals, kept, **options)
        results.append(own + (kept or []))
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(*results, rtol=4 * eps, atol=20 * eps)
    assert steps.tolist() == [1.0 + i for i in range(len(SHAPES))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("limit", [None, 0.5])
@pytest.mark.parametrize("shift", [0, 1], ids=["aligned", "not aligned"])
def test_the_size_of_an_update_is_the_plain_size(dtype, limit, shift):
    def tensors(kind):
        return [random(torch.Size(s).numel() + shift, kind)[shift:].view(s) for s in SHAPES]

    wide = torch.promote_types(dtype, torch.float32)
    columns = tensors(dtype), [d.clamp_min(-0.3) + 0.3 for d in tensors(wide)]
    numbers = {name: torch.rand(len(SHAPES)).double().to(DEVICE) for name in ("damping", "fill")}
    found, plain = (
        rule.squares(*columns, **numbers, update_limit=limit)
        for rule in (fused.triton_kernels(), on_device)
    )
    torch.testing.assert_close(found, plain, rtol=8 * torch.finfo(wide).eps, atol=0)


def test_the_limit_on_growth_is_the_plain_limit():
    """Along a course of sizes: a first step, growth, none, and what is not a number."""
    kept = [
        (torch.zeros((), dtype=torch.float64, device=DEVICE), torch.zeros((), device=DEVICE).long())
        for _ in range(2)
    ]
    sizes = [1.0, 1e3, 0.5, 0.0, float("inf"), float("nan"), *[2.0] * 20, 1e9, 1e-9]
    for size in sizes:
        squares = size**2 * torch.rand(1500, dtype=torch.float64).to(DEVICE)
        root = (squares.sum() / 5_000_000_019).sqrt()
        plain = growth.limit_(root, *kept[0], 1.3)
        numbers = {"growth": 1.3, **growth.NUMBERS}
        found = fused.limit_(squares, 5_000_000_019, *kept[1], **numbers)
        torch.testing.assert_close(found, plain, rtol=1e-13, atol=0)
        torch.testing.assert_close(kept[1], kept[0], rtol=1e-13, atol=0)


def _step(optimizer, seed):
    torch.manual_seed(seed)
    for p in optimizer.param_groups[0]["params"]:
        p.grad = random(p.shape, p.dtype)
    optimizer.param_groups[0]["steps_since_probe"] = -100
    optimizer.step()


def _shorten(parameter):
    """Cast it, where the allocator happens to give back the memory it had."""
    values = parameter.detach().bfloat16()
    memory = parameter.detach().view(torch.bfloat16).flatten()[: values.numel()]
    parameter.data = memory.view(values.shape).copy_(values)


CHANGES = {
    "a parameter is given other data": lambda p, state: setattr(p, "data", p.data.clone() + 1),
    "a parameter is turned around": lambda p, state: setattr(p, "data", p.data.t()),
    "a parameter is shorter, at its old place": lambda p, state: _shorten(p),
    "a diagonal is another tensor": lambda p, state: state.update(diagonal=state["diagonal"] * 2),
    "a diagonal lies elsewhere": lambda p, state: state["diagonal"].set_(state["diagonal"] * 2),
    "momentum starts again": lambda p, state: state.pop("momentum_buffer"),
}


@pytest.mark.parametrize("change", list(CHANGES.values()), ids=list(CHANGES))
def test_tensors_that_change_between_steps_are_moved_as_they_are(change, monkeypatch):
    monkeypatch.setattr(capture, "runs_kernels", lambda device: True)
    ends = []
    for options in ({}, {"fused": True}):
        torch.manual_seed(0)
        parameters = [nn.Parameter(random(shape)) for shape in [(4, 4), (3,), (4, 4)]]
        optimizer = ESGD(parameters, lr=0.1, momentum=0.9, **options)
        vectors = [random(p.shape) for p in parameters]
        optimizer.observe(vectors, [v.abs() + 1 for v in vectors])
        for seed in range(3):
            _step(optimizer, seed)
        change(parameters[2], optimizer.state[parameters[2]])
        _step(optimizer, 3)
        ends.append([p.detach().clone() for p in parameters])
    short = parameters[2].dtype == torch.bfloat16
    torch.testing.assert_close(*ends, rtol=1e-2 if short else 1e-5, atol=1e-2 if short else 1e-6)
