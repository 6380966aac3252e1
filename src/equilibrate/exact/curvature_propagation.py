"""Curvature propagation: diag(H) of a layered network by noise sent backward through it.

Martens, Sutskever & Swersky (2012), the other estimator of section 6. Write the Hessian in the
pre-activations a of one layer by that in the next, with h = phi(a) and g = dL/dh:

    H_a = diag(phi'(a)) W^T H_next W diag(phi'(a)) + diag(phi''(a) g).

Two vectors with E[s t^T] = H follow the same way: s_a = phi' * W^T s_next + sqrt|phi'' g| * v, and
t with the sign of phi'' g on the noise (the paper's complex square root, kept real). A weight
enters its layer linearly, so its entry of diag(H) is x_j^2 (H_a)_kk, estimated by x_j^2 s_k t_k:
the cost is one more backward pass.

The variance (normal noise, one sample of data). Let P and Q be the positive and negative parts
that add up to H_ii = P - Q along the way: Var(s_i t_i) = 2 P^2 + 2 Q^2. The paper says H_ii^2. It
is 2 H_ii^2 where nothing cancels and more where something does, without any bound in terms of H_ii.
Bekas's estimator has sum_j H_ij^2 - H_ii^2, so each can win.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from equilibrate.curvature.vectors import Distribution, draw_elements

Elementwise = Callable[[Tensor], Tensor]
Layer = tuple[Tensor, Tensor]


def curvature_propagation(
    layers: Sequence[Layer],
    activation: Elementwise,
    loss: Elementwise,
    inputs: Tensor,
    *,
    probes: int,
    distribution: Distribution = "gaussian",
    seed: int = 0,
) -> list[tuple[Tensor, Tensor]]:
    """Return `probes` unbiased samples of diag(H) for the weight and bias of each layer.

    The network is x -> W x + b for each `(W, b)` in `layers`, with `activation` between them;
    `loss` maps all outputs, (samples, classes), to a scalar that adds up over samples. The results
    have a new first dimension, one entry per probe: mean and variance are both at hand.

    Example:
        >>> layers = [(torch.full((1, 1), w), torch.zeros(1)) for w in (2.0, 3.0)]
        >>> samples = curvature_propagation(
        ...     layers, lambda a: a, lambda z: z.square().sum(), torch.ones(1, 1),
        ...     probes=2, distribution="rademacher")
        >>> samples[0][0].flatten().round(decimals=3)  # loss (3 w)^2: its second derivative is 18
        tensor([18., 18.])
    """
    states, gradients = _forward_backward(layers, activation, loss, inputs)

    def noise(layer: int) -> Tensor:
        shape = (probes, len(inputs), len(layers[layer][1]))
        flat = draw_elements(
            distribution, 0, shape[1] * shape[2], seed=seed, probe=torch.arange(probes),
            parameter=layer, device=inputs.device,
        )  # fmt: skip
        return flat.view(shape).to(inputs.dtype)

    found = []
    s, t = _from_the_loss(loss, states[-1][1], noise(len(layers) - 1))
    for i in reversed(range(len(layers))):
        x = states[i][0]
        product = s * t
        found.append((torch.einsum("pnk,nj->pkj", product, x.square()), product.sum(1)))
        if i > 0:
            below = states[i - 1][1]
            s, t = _through(layers[i][0], activation, below, gradients[i], noise(i - 1), s, t)
    return found[::-1]


def _forward_backward(
    layers: Sequence[Layer], activation: Elementwise, loss: Elementwise, inputs: Tensor
) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor]]:
    """Return each layer's (input, pre-activation), and the loss's gradient in each input."""
    states: list[tuple[Tensor, Tensor]] = []
    x = inputs.detach().clone().requires_grad_()
    for number, (weight, bias) in enumerate(layers):
        x = activation(states[-1][1]) if number else x
        states.append((x, x @ weight.detach().mT + bias.detach()))
    gradients = torch.autograd.grad(loss(states[-1][1]), [x for x, _ in states])
    return [(x.detach(), a.detach()) for x, a in states], list(gradients)


def _from_the_loss(loss: Elementwise, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return s and t at the outputs, from each sample's own Hessian of the loss."""
    pull = torch.func.vjp(torch.func.grad(loss), outputs)[1]
    axes = torch.eye(outputs.shape[-1], dtype=outputs.dtype, device=outputs.device)
    columns = [pull(axis.expand_as(outputs))[0] for axis in axes]
    values, vectors = torch.linalg.eigh(torch.stack(columns, -1))
    s = torch.einsum("nkl,pnl->pnk", vectors, values.abs().sqrt() * noise)
    t = torch.einsum("nkl,pnl->pnk", vectors, values.sign() * values.abs().sqrt() * noise)
    return s, t


def _through(
    weight: Tensor,
    activation: Elementwise,
    point: Tensor,
    gradient: Tensor,
    noise: Tensor,
    s: Tensor,
    t: Tensor,
) -> tuple[Tensor, Tensor]:
    """Carry s and t through one weight and one activation, adding the activation's own noise."""
    first, second = _derivatives(activation, point)
    own = second * gradient
    root = own.abs().sqrt() * noise
    return first * (s @ weight) + root, first * (t @ weight) + own.sign() * root


def _derivatives(activation: Elementwise, point: Tensor) -> tuple[Tensor, Tensor]:
    """Return phi' and phi'' at every element."""

    def slope(a: Tensor) -> Tensor:
        tangent: Tensor = torch.func.jvp(activation, (a,), (torch.ones_like(a),))[1]
        return tangent

    both = torch.func.jvp(slope, (point,), (torch.ones_like(point),))
    return both[0], both[1]
