"""Ways to probe side by side: products and choices are right, and nothing is changed."""

import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from equilibrate import ESGD, draw, hessian, math_attention
from equilibrate.monitor import ComparedProbes, Way, compare_probes
from equilibrate.monitor.compare_probes import CLOSURE, PROBE, SHARED
from equilibrate.monitor.probe_ways import Ways, unchanged

X = torch.randn(32, 6, generator=torch.Generator().manual_seed(1))
CALLS = (PROBE, SHARED, CLOSURE)


class OnceOnly(torch.autograd.Function):
    """A tanh without a second derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.tanh())
        return x.tanh()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * (1 - ctx.saved_tensors[0] ** 2)


class Once(nn.Module):
    def forward(self, x):
        return OnceOnly.apply(x)


class Attention(nn.Module):
    """Through the fused kernel; in a checkpoint, where it has no second derivative, if asked."""

    def __init__(self, kept=True):
        super().__init__()
        self.project = nn.Linear(6, 24)
        self.kept = kept

    def forward(self, x):
        q, k, v, w = self.project(x).view(1, 4, 8, 4, 6).unbind(-2)  # fused kernels want four sides
        attend = nn.functional.scaled_dot_product_attention
        kept = self.kept or not torch.is_grad_enabled()
        return w * (attend(q, k, v) if kept else checkpoint(attend, q, k, v, use_reentrant=False))


MODELS = {
    "tanh": lambda: [nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)],
    "relu": lambda: [nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)],
    "dropout and statistics": lambda: [
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 2)
    ],
    "attention": lambda: [Attention()],
    "attention in a checkpoint": lambda: [Attention(kept=False)],
    "once": lambda: [nn.Linear(6, 8), Once(), nn.Linear(8, 2)],
    "linear": lambda: [nn.Linear(6, 1)],
    "frozen": lambda: [nn.Linear(6, 8).requires_grad_(False), nn.Tanh(), nn.Linear(8, 2)],
}  # fmt: skip
SMOOTH = [name for name in MODELS if name not in ("relu", "once")]


def subject(name, dtype=torch.float32):
    torch.manual_seed(0)
    model = nn.Sequential(*MODELS[name]()).to(dtype)
    power = 1 if name == "linear" else 2
    return model, lambda: model(X.to(dtype)).pow(power).mean()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:The curvature measured by differences")
@pytest.mark.filterwarnings("ignore:No curvature was seen")
def test_nothing_is_changed(name):
    model, loss = subject(name)
    loss().backward()
    generator = torch.get_rng_state()
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    before = {key: (tensor, tensor.clone()) for key, tensor in tensors.items()}
    gradients = [(p.grad, None if p.grad is None else p.grad.clone()) for p in model.parameters()]
    compare_probes(model, loss, rounds=1)
    after = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for key, (tensor, value) in before.items():
        assert after[key] is tensor
        assert torch.equal(tensor, value), key
    for parameter, (gradient, value) in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is gradient
        assert gradient is None or torch.equal(gradient, value)
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize("name", [name for name in SMOOTH if name != "linear"])
def test_products_are_those_of_the_dense_matrix(name):
    model, loss = subject(name, torch.float64)
    own = [p for p in model.parameters() if p.requires_grad]
    with unchanged(model):
        ways = Ways(own, loss, seed=3)
        found = {call: ways.products(call) for call in CALLS}
        torch.set_rng_state(ways._start[0][1])
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            matrix = hessian(loss(), own)  # inside too, for the checkpoint
    v = torch.cat([each.flatten() for each in draw("rademacher", own, seed=3)])
    true = (matrix @ v).abs()
    size = true.norm()
    for call, products in found.items():
        apart = (torch.cat([p.flatten() for p in products]) - true).norm()
        # Differences: rounding and truncation of about (3 u)^(2/3) each, 5e-11 in double precision,
        # times third derivatives over second ones, which a thousandfold is far beyond here.
        assert apart <= (5e-8 if call == CLOSURE else 1e-12) * size, call


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.filterwarnings("ignore:No curvature was seen")
def test_on_smooth_networks_every_way_is_right(name):
    found = compare_probes(*subject(name), rounds=1)
    assert [way.call for way in found.ways] == list(CALLS)
    assert all(way.is_right for way in found.ways)
    assert [way.error for way in found.ways[:2]] == [0, pytest.approx(0, abs=1e-6)]
    assert found.cheapest in found.ways


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.filterwarnings("ignore:No curvature was seen")
def test_what_the_forward_pass_must_be_inside_of_is_written(name):
    """As it is written it works, and outside it would not."""
    model, loss = subject(name)
    found = compare_probes(model, loss, rounds=1)
    needs = name == "attention in a checkpoint"
    assert [way.inside for way in found.ways] == [needs, needs, False]
    assert ("probe(loss) inside math_attention(optimizer)" in str(found)) == needs
    optimizer = ESGD(model.parameters(), lr=0.0)
    with math_attention(optimizer):
        optimizer.probe(loss())
    with pytest.raises(RuntimeError) if needs else nullcontext():
        ESGD(model.parameters(), lr=0.0).probe(loss())


@pytest.mark.filterwarnings("ignore:The curvature measured by differences")
def test_differences_across_kinks_are_wrong_however_cheap():
    found = compare_probes(*subject("relu"), rounds=1)
    by_closure = found.ways[2]
    assert by_closure.error > 0.2
    assert not by_closure.is_right
    assert str(by_closure).endswith("; not right here: left out")
    assert found.cheapest.call != CLOSURE


def test_without_a_second_derivative_the_closure_is_left():
    found = compare_probes(*subject("once"), rounds=1)
    assert all("once_differentiable" in way.refused for way in found.ways[:2])
    assert found.cheapest is found.ways[2]
    # By how much |H v| moves when the width is doubled: truncation grows fourfold, to about
    # 4 (3 u)^(2/3) = 1.3e-4 in float32 times ratios of derivatives; 0 would mean one width twice.
    assert 0 < found.ways[2].error < 1e-2


def test_who_is_cheapest():
    def way(call, cost, error=0.0, refused=""):
        return Way(call, cost, 0, error, refused)

    exact, close, wrong = way("a", 3.0), way("b", 2.0, 0.01), way("c", 1.0, 0.5)
    gone = way("d", math.nan, math.nan, "no second derivative")
    assert ComparedProbes(1.0, (gone, exact, close, wrong)).cheapest is close
    assert ComparedProbes(1.0, (gone, wrong)).cheapest is None
    text = str(ComparedProbes(1.0, (gone, exact, close, wrong)))
    assert "d: cannot be had here. no second derivative" in text
    assert text.endswith(
        "Cheapest: b, which adds 10% of a gradient to every step, one probe in 20."
    )
    assert str(ComparedProbes(1.0, (wrong,))).endswith("None of them measures the Hessian here.")


def test_the_users_own_errors_pass_through_and_leave_nothing_behind():
    model, _ = subject("dropout and statistics")
    before = {key: value.clone() for key, value in model.state_dict().items()}

    def broken():
        model(X)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        compare_probes(model, broken)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_an_optimizer_that_is_training_goes_on_as_if_nothing_had_been():
    def run(compares):
        model, loss = subject("dropout and statistics")
        optimizer = ESGD(model.parameters())
        for step in range(25):
            if compares and step in (0, 7):
                compare_probes(model, loss, rounds=1)
            live = loss()
            optimizer.probe(live)
            live.backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.state_dict()

    plain, watched = run(False), run(True)
    assert all(torch.equal(watched[key], value) for key, value in plain.items())
