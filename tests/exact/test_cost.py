"""Section 4, what a product costs: row T23, counted in matrix multiplications, not in time."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from equilibrate import draw, function_product, loss_product

WIDTHS = {
    "paper's MNIST autoencoder": [784, 1000, 500, 250, 30, 250, 500, 1000, 784],
    "square": [64] * 6,
    "shallow": [64, 64, 64],
}


class _Network:
    def __init__(self, widths) -> None:
        pairs = itertools.pairwise(widths)
        layers = [layer for i, o in pairs for layer in (nn.Linear(i, o), nn.Sigmoid())]
        self.model = nn.Sequential(*layers[:-1])
        self.inputs = torch.rand(4, widths[0])
        self.parameters = list(self.model.parameters())
        self.names = [name for name, _ in self.model.named_parameters()]

    def loss(self, parameters):
        named = dict(zip(self.names, parameters, strict=True))
        outputs = torch.func.functional_call(self.model, named, (self.inputs,))
        return nn.functional.binary_cross_entropy_with_logits(outputs, torch.zeros_like(outputs))

    def gradient(self):
        return torch.autograd.grad(self.loss(self.parameters), self.parameters)


def _operations(work):
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


@pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS)
def test_t23_a_product_costs_about_two_gradients_on_top_of_the_first(widths):
    """The R-operator differentiates each of a gradient's multiplications: W x becomes two.

    So a product is exactly two gradients besides the gradient it differentiates: three from
    scratch. Double backward shares the forward pass and the gradient with the step: 1.6 to 1.9
    more, since it never needs the part that belongs to the inputs.
    """
    network = _Network(widths)
    vectors = draw("gaussian", network.parameters)
    gradient = _operations(network.gradient)
    forward = _operations(
        lambda: function_product(network.loss, [p.detach() for p in network.parameters], vectors)
    )
    backward = _operations(
        lambda: loss_product(network.loss(network.parameters), network.parameters, vectors)
    )
    assert forward / gradient - 1 == pytest.approx(2.0, abs=1e-9)
    assert 1.5 < backward / gradient - 1 < 2.0
