"""How far a closure's points are displaced: by the precision in use and by how the loss turns."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD
from equilibrate.curvature.differences import relative_step
from tests.optim.closures import closure_of, regression
from tests.optim.loops import train


@pytest.mark.parametrize("activation", [nn.Tanh, nn.GELU, nn.Sigmoid])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_step_suits_the_precision_inside_autocast(activation, dtype):
    """Under autocast float32 parameters hide coarser arithmetic, in which a fine step is noise."""
    model, loss = regression(activation)

    def under_autocast():
        with torch.autocast("cpu", torch.bfloat16 if dtype == torch.float32 else dtype,
                            enabled=dtype != torch.float32):  # fmt: skip
            return loss()

    exact = ESGD(model.parameters(), lr=0.0, warmup_probes=20)
    train(exact, loss, 1)
    optimizer = ESGD(model.parameters(), lr=0.0, warmup_probes=20)
    optimizer.step(closure_of(optimizer, under_autocast))
    if dtype == torch.bfloat16 and activation is nn.Tanh:
        assert optimizer.param_groups[0]["difference_step"] > 0.1
    pairs = list(zip(optimizer.diagonal(), exact.diagonal(), strict=True))
    off = sum((a - b).square().sum() for a, b in pairs).sqrt()
    assert off < 0.2 * sum(b.square().sum() for _, b in pairs).sqrt()


def test_a_gradient_that_turns_fast_is_measured_with_a_finer_step():
    """At float32's own step and at coarser ones the sines turn by 5 to 12 and more: noise."""
    turns = torch.linspace(1000.0, 2500.0, 40)
    diagonals = []
    for by in ("probe", "closure"):
        point = torch.linspace(-1.5, 1.5, 40, requires_grad=True)
        optimizer = ESGD([point], lr=0.0, warmup_probes=1, probe_every=1)

        def loss(point=point):
            return torch.cos(turns * point).sum()

        train(optimizer, loss, 2) if by == "probe" else optimizer.step(closure_of(optimizer, loss))
        diagonals.append(optimizer.diagonal()[0])
    step = optimizer.param_groups[0]["difference_step"]
    assert step == pytest.approx(relative_step(torch.float32) / 100)
    turned = step * 2500 * float(point.detach().square().mean().sqrt())
    rounded = 1.5 * 2500 * torch.finfo(torch.float32).eps / turned  # the sines' arguments
    torch.testing.assert_close(*diagonals, rtol=turned**2 / 6, atol=rounded * 2500**2)


def test_the_width_is_kept_until_it_is_taken_away():
    """The sines of above, slow at first: fast ones are noise at the width that was chosen."""
    turns = torch.linspace(1.0, 2.5, 40)
    point = torch.linspace(-1.5, 1.5, 40, requires_grad=True)
    optimizer = ESGD([point], lr=0.0, warmup_probes=1, probe_every=1)
    (group,) = optimizer.param_groups
    closure = closure_of(optimizer, lambda: torch.cos(turns * point).sum())
    optimizer.step(closure)
    assert group["difference_step"] == (own := relative_step(torch.float32))
    turns *= 1000
    optimizer.step(closure)
    assert group["difference_step"] == own
    group["difference_step"] = None
    optimizer.step(closure)
    assert group["difference_step"] == pytest.approx(own / 100)


def test_products_that_vanish_at_finer_steps_are_not_taken_for_the_curvature():
    """Computed in bfloat16 no parameter moves there, so that every product is zero."""
    turns = torch.linspace(1000.0, 2500.0, 40)
    point = torch.ones(40, requires_grad=True)
    optimizer = ESGD([point], lr=0.0)
    closure = closure_of(optimizer, lambda: torch.cos(turns * point.bfloat16()).sum())
    with pytest.raises(RuntimeError, match="rounding noise"):
        optimizer.step(closure)


def test_kinks_are_told_of_and_training_goes_on():
    model, loss = regression(nn.ReLU)
    optimizer = ESGD(model.parameters(), lr=0.01)
    closure = closure_of(optimizer, loss)
    first = float(loss())
    with pytest.warns(UserWarning, match="kinks"):
        optimizer.step(closure)
    for _ in range(40):
        last = float(optimizer.step(closure))
    assert last < first


def _kinked(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    generator = torch.Generator().manual_seed(seed)
    data = torch.randn(64, 6, generator=generator)
    target = torch.randn(64, 3, generator=generator)
    return model, lambda: nn.functional.mse_loss(model(data), target)


@pytest.mark.parametrize("seed", range(12))
def test_every_kinked_loss_is_told_of_and_never_measured_with_a_finer_step(seed):
    """A fine step crosses few kinks: one vector may see none, and the next a jump over the step."""
    model, loss = _kinked(seed)
    optimizer = ESGD(model.parameters(), lr=0.0)
    with pytest.warns(UserWarning, match=r"kinks \(Relu\)"):
        optimizer.step(closure_of(optimizer, loss))
    assert optimizer.param_groups[0]["difference_step"] >= relative_step(torch.float32)


def test_a_clamp_around_fast_sines_forbids_no_finer_step():
    turns = torch.linspace(1000.0, 2500.0, 40)
    point = torch.linspace(-1.5, 1.5, 40, requires_grad=True)
    optimizer = ESGD([point], lr=0.0, warmup_probes=1)
    optimizer.step(closure_of(optimizer, lambda: torch.cos(turns * point).clamp(-2, 2).sum()))
    step = optimizer.param_groups[0]["difference_step"]
    assert step == pytest.approx(relative_step(torch.float32) / 100)
