"""Attention with second derivatives where they are needed, and the fast kernels everywhere else."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from torch.nn.attention import SDPBackend, sdpa_kernel

from equilibrate.optim.moving import CurvatureOptimizer


@contextmanager
def math_attention(optimizer: CurvatureOptimizer) -> Iterator[None]:
    """Run attention by its MATH kernel in passes that `probe` may differentiate twice.

    The fused kernels of `scaled_dot_product_attention` have no second derivative. Put the forward
    pass inside this context, before `optimizer.probe(loss)`: it picks the MATH kernel where a probe
    is due, or may become so because a parameter was never measured; other passes keep the kernel
    they have.

    Example:
        >>> import torch
        >>> from equilibrate import ESGD
        >>> layer = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        >>> optimizer = ESGD(layer.parameters())
        >>> x = torch.randn(3, 5, 4)
        >>> with math_attention(optimizer):
        ...     loss = layer(x, x, x, need_weights=False)[0].square().mean()
        >>> optimizer.probe(loss)
        True
    """
    if not hasattr(optimizer, "probe_due"):
        raise TypeError(
            "math_attention asks ESGD or JacobiSGD when a probe is due; "
            f"{type(optimizer).__name__} never probes. To choose the kernel for every pass, as a "
            "Monitor of another optimizer needs: with "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH): ..."
        )
    twice = optimizer.probe_due or optimizer._unmeasured()
    with sdpa_kernel(SDPBackend.MATH) if twice else nullcontext():
        yield
