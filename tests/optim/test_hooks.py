"""What hooks of activations and modules see: products too, while `measuring` is true."""

import torch
from torch import nn

from equilibrate import ESGD


def _network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(5, 3)


def test_a_hook_that_heeds_measuring_sees_the_gradients_alone():
    network, inputs = _network()
    optimizer, seen, all_calls = ESGD(network.parameters(), probe_every=2), [], []

    def note(module, given, arriving):
        all_calls.append(arriving[0])
        if not optimizer.measuring:
            seen.append(arriving[0].clone())

    network[1].register_full_backward_hook(note)
    for _ in range(3):
        loss = network(inputs).square().mean()
        optimizer.probe(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert len(seen) == 3
    assert len(all_calls) > 3
    assert not optimizer.measuring


def test_an_activation_emptied_after_the_probe_has_its_own_gradient():
    network, inputs = _network()
    optimizer = ESGD(network.parameters())
    gradients = []
    for probing in (False, True):
        hidden = network[1](network[0](inputs))
        hidden.retain_grad()
        loss = network[2](hidden).square().mean()
        if probing:
            optimizer.probe(loss)
            assert hidden.grad is not None  # of products: torch tells nobody who retains
            hidden.grad = None
        loss.backward()
        gradients.append(hidden.grad)
    torch.testing.assert_close(*gradients, rtol=0, atol=0)
