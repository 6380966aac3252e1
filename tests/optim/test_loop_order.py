"""What stands around a step, in the order docs/loops.md gives: clip, step, schedule, average."""

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

from equilibrate import ESGD, JacobiSGD

DOUBLE = torch.float64


def _problem():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).to(DOUBLE)
    x, y = torch.randn(16, 6, dtype=DOUBLE), torch.randn(16, 3, dtype=DOUBLE)
    return model, x, lambda: (model(x) - y).square().mean()


def _parameters(model):
    return [p.detach().clone() for p in model.parameters()]


def _one_step(clip=None, kind=ESGD, scaler=None):
    model, _, loss = _problem()
    start = _parameters(model)
    optimizer = kind(model.parameters(), lr=0.01)
    value = loss()
    optimizer.probe(value)
    (scaler.scale(value) if scaler else value).backward()
    if scaler:
        scaler.unscale_(optimizer)
    norm = clip(model.parameters()) if clip else None
    scaler.step(optimizer) if scaler else optimizer.step()
    moved = [a - b for a, b in zip(_parameters(model), start, strict=True)]
    return norm, moved, optimizer.diagonal()


@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
@pytest.mark.parametrize("scaled", [False, True])
def test_clipping_by_norm_shortens_the_step_and_leaves_the_curvature(kind, scaled):
    """A step is linear in the gradient: it shrinks by the factor the gradient does."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10) if scaled else None
    _, free, diagonal = _one_step(kind=kind)
    norm, clipped, same = _one_step(lambda p: clip_grad_norm_(p, 0.1), kind, scaler)
    assert norm > 0.2
    torch.testing.assert_close(same, diagonal, rtol=0, atol=0)
    expected = [m * 0.1 / (norm + 1e-6) for m in free]
    torch.testing.assert_close(clipped, expected)


def test_clipping_by_value_bounds_each_coordinate():
    _, free, diagonal = _one_step()
    _, clipped, same = _one_step(lambda p: clip_grad_value_(p, 0.01))
    torch.testing.assert_close(same, diagonal, rtol=0, atol=0)
    assert all((c.abs() <= f.abs() + 1e-15).all() for c, f in zip(clipped, free, strict=True))
    assert any((c != f).any() for c, f in zip(clipped, free, strict=True))


def _trained(steps=12, after=None, schedule=None, groups=False):
    model, x, loss = _problem()
    named = [[p for p in model.parameters() if p.ndim == d] for d in (2, 1)]
    given = (
        [{"params": named[0]}, {"params": named[1], "weight_decay": 0.0, "probe_every": 2}]
        if groups
        else model.parameters()
    )
    optimizer = ESGD(given, lr=0.01, probe_every=4, weight_decay=0.1)
    scheduler = schedule(optimizer) if schedule else None
    rates = []
    for step in range(steps):
        value = loss()
        optimizer.probe(value)
        value.backward()
        clip_grad_norm_(model.parameters(), 5.0)
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if scheduler:
            scheduler.step()
        if after:
            after(step, model)
        optimizer.zero_grad()
    return model, x, rates


def test_an_average_of_the_weights_watches_and_changes_nothing():
    plain, _, _ = _trained()
    averages, path = [], []

    def follow(step, model):
        if not averages:
            averages.append(AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)))
        averages[0].update_parameters(model)
        path.append(_parameters(model))

    watched, x, _ = _trained(after=follow)
    torch.testing.assert_close(_parameters(watched), _parameters(plain), rtol=0, atol=0)
    by_hand = path[0]
    for point in path[1:]:
        by_hand = [0.9 * a + 0.1 * b for a, b in zip(by_hand, point, strict=True)]
    torch.testing.assert_close(_parameters(averages[0]), by_hand)
    update_bn([(x,)], averages[0])  # after training, as for any optimizer


def test_swa_starts_late_averages_equally_and_drives_the_rate():
    averages, path = [], []

    def follow(step, model):
        if step >= 6:
            averages[:] = averages or [AveragedModel(model)]
            averages[0].update_parameters(model)
            path.append(_parameters(model))

    _, _, rates = _trained(after=follow, schedule=lambda o: SWALR(o, swa_lr=0.002, anneal_epochs=4))
    assert rates[0] == 0.01
    assert rates[-1] == pytest.approx(0.002)
    mean = [torch.stack(points).mean(0) for points in zip(*path, strict=True)]
    torch.testing.assert_close(_parameters(averages[0]), mean)


def test_a_warm_up_of_the_rate_then_a_cosine():
    _, _, rates = _trained(
        schedule=lambda o: SequentialLR(
            o, [LinearLR(o, 0.1, total_iters=4), CosineAnnealingLR(o, 8)], milestones=[4]
        )
    )
    assert rates[:5] == pytest.approx([0.001, 0.00325, 0.0055, 0.00775, 0.01])
    assert rates[5:] == sorted(rates[5:], reverse=True)


def test_groups_keep_their_own_decay_and_schedule():
    model, _, _ = _trained(groups=True)
    plain, _, _ = _trained()
    pairs = zip(_parameters(model), _parameters(plain), strict=True)
    assert any(not torch.equal(a, b) for a, b in pairs)
