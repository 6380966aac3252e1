"""A gradient or product that torch negates lazily is stepped with its sign, not that of memory."""

import pytest
import torch

from equilibrate import ESGD, JacobiSGD

OPTIMIZERS = [ESGD, JacobiSGD]
SETTINGS = {
    "plain": {},
    "momentum": {"momentum": 0.9},  # its growth limit reads the gradients as well
    "fused": {"fused": True},
    "fused momentum": {"fused": True, "momentum": 0.9},
    "capturable": {"capturable": True},
}


def lazily(tensor):
    """Return an equal tensor whose memory holds the other sign."""
    lazy = torch.complex(torch.zeros_like(tensor), -tensor).conj().imag
    assert lazy.is_neg()
    torch.testing.assert_close(lazy, tensor, rtol=0, atol=0)
    return lazy.detach()


def train(make, settings, change):
    """Return a weight after four steps, its gradients and products as `change` hands them on."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))
    optimizer = make([weight], lr=0.1, probe_every=2, **settings)
    scales = torch.arange(1.0, 7.0).reshape(2, 3)
    for _ in range(4):
        if optimizer.probe_due:
            vector = torch.randn(2, 3)
            optimizer.observe([vector], [change(2 * scales * vector)])
        weight.grad = change((2 * scales * weight).detach())
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_lazily_negated_gradient_is_stepped_as_one_written_out(make, setting):
    settings = SETTINGS[setting]
    expected = train(make, settings, lambda tensor: tensor)
    torch.testing.assert_close(train(make, settings, lazily), expected, rtol=0, atol=0)
