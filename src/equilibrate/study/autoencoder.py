"""The deep auto-encoders of Martens 2010, the benchmark of the paper's section 6.

Every unit is logistic, the output included; Martens left the code layer linear, the paper says
'sigmoidal hidden units', so both are offered. The network stops at the logits: cross-entropy
computed from them is exact where the sigmoid of a float32 would already have rounded to 0 or 1.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

MNIST_SIZES = (784, 1000, 500, 250, 30, 250, 500, 1000, 784)
"""Layer sizes of the MNIST network, pixels to pixels: 2,837,314 parameters."""

CURVES_SIZES = (784, 400, 200, 100, 50, 25, 6, 25, 50, 100, 200, 400, 784)
"""Layer sizes of the CURVES network, pixels to pixels: 842,340 parameters."""

INCOMING = 15
"""Non-zero incoming weights of a unit at the start (Martens 2010, section 5)."""


def autoencoder(
    sizes: Sequence[int],
    *,
    code: Literal["sigmoid", "linear"] = "sigmoid",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> nn.Sequential:
    """A sparsely initialised auto-encoder whose output is logits.

    z_l = W_l a_(l-1) + b_l, a_l = sigmoid(z_l); with ``code="linear"`` a = z in the middle layer;
    the last layer returns z. Each seed names one network: the weights are drawn on the CPU in
    float32, then cast and moved, so every device and every wider dtype gets the same network.

    Args:
        sizes: layer sizes from input to output, an odd number of them; the middle one is the code.
        code: the code layer's activation, ``"sigmoid"`` (the paper) or ``"linear"`` (Martens).
        seed: of the weights; torch's global generator is neither read nor moved.
        dtype: of the parameters.
        device: of the parameters.

    Example:
        >>> network = autoencoder(MNIST_SIZES, seed=1)
        >>> sum(parameter.numel() for parameter in network.parameters())
        2837314
        >>> network(torch.rand(5, 784)).shape
        torch.Size([5, 784])
    """
    _check(sizes, code)
    generator = torch.Generator("cpu").manual_seed(seed)
    layers: list[nn.Module] = []
    for index, (fan_in, fan_out) in enumerate(pairwise(sizes), start=1):
        layers.append(_sparse_linear(fan_in, fan_out, generator, dtype, device))
        is_code, is_last = index == len(sizes) // 2, index == len(sizes) - 1
        if not is_last and not (is_code and code == "linear"):
            layers.append(nn.Sigmoid())
    return nn.Sequential(*layers)


def sparse_weights(fan_in: int, fan_out: int, generator: torch.Generator) -> Tensor:
    """A [fan_out, fan_in] matrix whose rows hold 15 entries ~ N(0, 1), elsewhere 0.

    The places are drawn without replacement; a row of fewer than 15 entries is filled. (Martens'
    code draws with replacement, so a few places coincide and a row holds slightly fewer: about 12
    of 30 inputs.) ``generator`` must live on the CPU.

    Example:
        >>> weights = sparse_weights(100, 3, torch.Generator().manual_seed(0))
        >>> weights.count_nonzero(dim=1)
        tensor([15, 15, 15])
    """
    # Named device and dtype, for a caller may have changed torch's defaults.
    weights = torch.zeros(fan_out, fan_in, device="cpu", dtype=torch.float32)
    # Sorting noise shuffles every row at once: its first places are a sample without replacement.
    noise = torch.empty_like(weights).uniform_(generator=generator)
    places = noise.argsort(dim=1, stable=True)[:, :INCOMING]
    values = weights.new_empty(places.shape).normal_(generator=generator)
    return weights.scatter_(1, places, values)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """-sum_pixels [t log p + (1-t) log(1-p)], p = sigmoid(logits), mean over the cases.

    The training objective. Not averaged over pixels: the paper's learning rates and damping assume
    the sum.

    Example:
        >>> cross_entropy(torch.zeros(3, 2), torch.ones(3, 2))  # 2 log 2
        tensor(1.3863)
    """
    _check_shapes(logits, target)
    pixels = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    return pixels.sum(-1).mean()


def squared_error(logits: Tensor, target: Tensor) -> Tensor:
    """sum_pixels (sigmoid(logits) - t)^2, mean over the cases, without 1/2: the reported error.

    Example:
        >>> squared_error(torch.zeros(3, 2), torch.ones(3, 2))  # 2 (1/2)^2
        tensor(0.5000)
    """
    _check_shapes(logits, target)
    return (logits.sigmoid() - target).square().sum(-1).mean()


def _sparse_linear(
    fan_in: int,
    fan_out: int,
    generator: torch.Generator,
    dtype: torch.dtype,
    device: torch.device | str,
) -> nn.Linear:
    # Made without memory first, for nn.Linear's own initialisation would move the global generator.
    layer = nn.Linear(fan_in, fan_out, dtype=dtype, device="meta").to_empty(device=device)
    with torch.no_grad():
        layer.weight.copy_(sparse_weights(fan_in, fan_out, generator))
        layer.bias.zero_()
    return layer


def _check(sizes: Sequence[int], code: str) -> None:
    if len(sizes) < 3 or len(sizes) % 2 == 0 or min(sizes) < 1:
        raise ValueError(
            f"sizes must be an odd number (3 or more) of positive layer sizes with the code in the "
            f"middle, such as MNIST_SIZES; got {tuple(sizes)}"
        )
    if code not in ("sigmoid", "linear"):
        raise ValueError(f'code must be "sigmoid" (the paper) or "linear" (Martens); got {code!r}')


def _check_shapes(logits: Tensor, target: Tensor) -> None:
    # Broadcasting [cases, 784] against [cases, 1, 28, 28] would return a plausible, wrong number.
    if logits.shape != target.shape:
        raise ValueError(
            f"logits {tuple(logits.shape)} and target {tuple(target.shape)} differ in shape; "
            f"reshape the images to the network's output, or expand one target over the cases"
        )
