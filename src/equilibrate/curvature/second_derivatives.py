"""Second derivatives by formulas of our own, where torch has none, a wrong one or a slow one.

While a gradient is taken with its graph, torch puts a node of its own behind what leaves an
operation's backward. A hook there puts another node behind the very same values, so that nothing is
computed twice; only when the gradient is differentiated once more does our formula run. Users need
not change their models for it, and their own backward passes never meet it. Where torch's is right
and what it is taken of is small, torch's stays: it is the faster one there.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from equilibrate.curvature import (
    attention_gradient,
    batch_norm_gradient,
    convolution_gradient,
    embedding_bag_gradient,
    gelu_gradient,
    layer_norm_gradient,
    log_softmax_gradient,
    weight_norm_gradient,
)
from equilibrate.curvature.graph import Nodes

Replace = Callable[[Any, tuple[Tensor | None, ...], Any], Any]

# What replaces the gradients that leave a node, by the name that torch gives the node.
REPLACE: dict[str, Replace] = {
    "ConvolutionBackward0": convolution_gradient.replace,
    "CudnnBatchNormBackward0": batch_norm_gradient.replace,
    "EmbeddingBagBackward0": embedding_bag_gradient.replace,
    "GeluBackward0": gelu_gradient.replace,
    "LogSoftmaxBackward0": log_softmax_gradient.replace,
    "NativeBatchNormBackward0": batch_norm_gradient.replace,
    "NativeLayerNormBackward0": layer_norm_gradient.replace,
    "ScaledDotProductCudnnAttentionBackward0": attention_gradient.replace,
    "ScaledDotProductEfficientAttentionBackward0": attention_gradient.replace,
    "ScaledDotProductFlashAttentionBackward0": attention_gradient.replace,
    "ScaledDotProductFlashAttentionForCpuBackward0": attention_gradient.replace,
    "WeightNormInterfaceBackward0": weight_norm_gradient.replace,
}

# Where torch's second derivative is right: ours takes fewer passes, but more of the host's time.
_SLOW = frozenset(
    {
        "CudnnBatchNormBackward0",
        "GeluBackward0",
        "LogSoftmaxBackward0",
        "NativeBatchNormBackward0",
        "NativeLayerNormBackward0",
    }
)
_FROM = 2**15  # elements, where the normalisations begin to gain (`benchmarks.second_derivatives`)


@contextmanager
def second_derivatives(graph: Nodes) -> Iterator[None]:
    """Let gradients that are taken of this graph inside, with a graph, have our second derivatives.

    Example:
        >>> import torch
        >>> from equilibrate.curvature.graph import nodes
        >>> x = torch.randn(1, 2, 3, 4, requires_grad=True)
        >>> loss = torch.nn.functional.scaled_dot_product_attention(x, x, x).square().sum()
        >>> with second_derivatives(nodes(loss)):
        ...     (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        >>> torch.autograd.grad(gradient.sum(), x)[0].shape  # an error without
        torch.Size([1, 2, 3, 4])
    """
    with ExitStack() as hooks:
        for node in graph:
            if replace := REPLACE.get(type(node).__name__):
                hooks.callback(node.register_hook(partial(_replaced, replace, node)).remove)
        yield


def _replaced(
    replace: Replace, node: Any, leaving: tuple[Tensor | None, ...], arriving: Any
) -> Any:
    """Leave to torch what lies under a checkpoint, which shows its values once."""
    try:
        return replace(node, leaving, arriving) if _gains(node, arriving) else None
    except CheckpointError:
        return None


def _gains(node: Any, arriving: tuple[Tensor | None, ...]) -> bool:
    """Tell whether ours is needed, or the faster one; nested tensors are left to torch."""
    given = [gradient for gradient in arriving if gradient is not None]
    if any(gradient.is_nested for gradient in given):
        return False
    small = all(gradient.numel() < _FROM for gradient in given)
    return not (small and type(node).__name__ in _SLOW)
