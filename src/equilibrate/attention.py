"""Attention by the kernel that torch differentiates twice, where that is needed and there alone."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

from torch.nn.attention import SDPBackend, sdpa_kernel

from equilibrate.optim.moving import CurvatureOptimizer


class Asked(Protocol):
    """What says beforehand whether it will differentiate the next loss twice: a `Monitor`."""

    @property
    def due(self) -> bool:
        """Whether it will."""


@contextmanager
def math_attention(*asked: CurvatureOptimizer | Asked) -> Iterator[None]:
    """Run attention by its MATH kernel in passes that will be differentiated twice.

    The fused kernels of `scaled_dot_product_attention` have a second derivative here, but not with
    dropout or a learned mask on a GPU, nor under a checkpoint. There put the forward pass inside
    this context, before `optimizer.probe(loss)` and `monitor(loss)`; with activation checkpointing,
    which runs it again, these and `loss.backward()` too. Name those who measure:
    `math_attention(optimizer)`, with a `Monitor` `math_attention(optimizer, monitor)`, beside
    another optimizer `math_attention(monitor)`. It picks the MATH kernel where a measurement of any
    of them is due, or a probe may become so because a parameter was never measured; other passes
    keep theirs.

    Example:
        >>> import torch
        >>> from equilibrate import ESGD
        >>> from equilibrate.monitor import Monitor
        >>> layer = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        >>> optimizer = ESGD(layer.parameters())
        >>> monitor = Monitor(layer, optimizer, lambda record: None)
        >>> x = torch.randn(3, 5, 4)
        >>> with math_attention(optimizer, monitor):
        ...     loss = layer(x, x, x, need_weights=False)[0].square().mean()
        >>> optimizer.probe(loss)
        True
        >>> monitor(loss)["sharpness"] > 0
        True
    """
    twice = [_will_measure(each) for each in asked]  # all of them: one may have to be refused
    if not twice:
        raise TypeError(
            "math_attention() asks who measures whether that is due. Name them: "
            "math_attention(optimizer), or with a Monitor math_attention(optimizer, monitor)."
        )
    with sdpa_kernel(SDPBackend.MATH) if any(twice) else nullcontext():
        yield


def _will_measure(each: Any) -> bool:
    """Tell whether the next loss is, or may be, differentiated twice."""
    if hasattr(each, "probe_due"):
        return bool(each.probe_due or each._unmeasured())
    if hasattr(each, "due"):
        return bool(each.due)
    raise TypeError(
        "math_attention asks ESGD or JacobiSGD when a probe is due, a Monitor when it measures; "
        f"{type(each).__name__} never probes. Beside it name the monitor alone: "
        "math_attention(monitor). To choose the kernel for every pass: with "
        "torch.nn.attention.sdpa_kernel(SDPBackend.MATH): ..."
    )
