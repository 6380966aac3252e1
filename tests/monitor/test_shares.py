"""Shares that a record counts: unseen, damped, flat now, of negative curvature."""

import pytest
import torch

from equilibrate import ESGD
from equilibrate.monitor import Monitor


def test_dead_units_and_damping_are_counted():
    weight = torch.tensor([[1.0, 1.0], [0.0, 0.0]], requires_grad=True)
    optimizer = ESGD([weight], damping=2.0)
    loss = (torch.tensor([1.0, 3.0]) * weight[0] ** 2).sum()
    optimizer.probe(loss)
    record = Monitor([("w", weight)], optimizer, lambda r: None)(loss)
    assert record["layers/w/share_unseen"] == 0.5
    assert record["layers/w/share_damped"] == 0.5  # 2 and 6, mean 4: both below 2 * 4


def test_a_unit_that_dies_later_is_flat_now_though_it_was_seen():
    weight = torch.tensor([1.0, 1.0], requires_grad=True)
    optimizer = ESGD([weight])
    optimizer.probe(weight.square().sum())
    record = Monitor([("w", weight)], optimizer, lambda r: None)(weight[0] ** 2)
    assert record["layers/w/share_unseen"] == 0
    assert record["layers/w/share_flat"] == 0.5


def test_negative_curvature_is_seen():
    weight = torch.ones(200, requires_grad=True)
    signs = torch.where(torch.arange(200) < 50, -1.0, 1.0)
    loss = (signs * weight**2).sum()
    record = Monitor([("w", weight)], torch.optim.SGD([weight]), lambda r: None)(loss)
    assert record["negative_share_low"] <= 0.25 <= record["negative_share_high"]
    assert record["negative_share"] == pytest.approx(0.25, abs=0.1)  # one start: deviation 0.043
    assert record["layers/w/share_negative_diagonal"] == pytest.approx(0.25)
