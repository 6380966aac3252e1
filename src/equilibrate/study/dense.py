"""The forward pass of a stack of dense networks, written out: a fast path beside `torch.vmap`.

A chain of linear layers and elementwise functions needs no `vmap`: with a leading dimension of
trials a layer is one batched product, and an elementwise function is itself. Anything else runs
under `vmap`; a test holds the two equal.
"""

from collections.abc import Callable, Mapping

from torch import Tensor, nn

Forward = Callable[[Mapping[str, Tensor], Tensor], Tensor]

# They act on every element alike, hold no parameters and draw nothing.
ELEMENTWISE = (
    nn.Identity, nn.Sigmoid, nn.Tanh, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU,
    nn.Softplus, nn.Softsign, nn.Hardtanh, nn.LogSigmoid,
)  # fmt: skip


def dense_forward(network: nn.Module) -> Forward | None:
    """Return the stacked forward pass of a dense network, or None where it is not one.

    The result takes parameters (trials, ...) by name and inputs (trials, cases, features).

    Example:
        >>> import torch
        >>> forward = dense_forward(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))
        >>> parameters = {"0.weight": torch.ones(5, 2, 3), "0.bias": torch.zeros(5, 2)}
        >>> forward(parameters, torch.ones(5, 4, 3)).shape
        torch.Size([5, 4, 2])
        >>> dense_forward(nn.Sequential(nn.Conv2d(1, 1, 3))) is None
        True
    """
    if type(network) is not nn.Sequential or not all(map(_plain, network)):
        return None
    layers = [
        _linear(name) if type(layer) is nn.Linear else _elementwise(layer)
        for name, layer in network.named_children()
    ]

    def forward(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        # Features before cases: then the gradient of a weight comes out in the weight's own order.
        x = x.mT
        for layer in layers:
            x = layer(parameters, x)
        return x.mT

    return forward


def _plain(layer: nn.Module) -> bool:
    """Tell a layer that is nothing but what its class says: no hook, no parametrization."""
    hooked = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks
    known = type(layer) in ELEMENTWISE or (type(layer) is nn.Linear and layer.bias is not None)
    return known and not hooked


def _linear(name: str) -> Forward:
    def layer(parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        # Not baddbmm: it would spread the bias in memory first, a pass that a compiler saves.
        return parameters[f"{name}.weight"] @ x + parameters[f"{name}.bias"].unsqueeze(2)

    return layer


def _elementwise(module: nn.Module) -> Forward:
    return lambda parameters, x: module(x)
