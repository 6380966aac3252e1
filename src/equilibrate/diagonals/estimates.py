"""Estimates of a diagonal from probes alone, as plain functions that also say how sure they are.

Each takes the Hessian as a callable from vectors to products (`LossHessian(loss, parameters)`, or a
`lambda` over `function_product` or `difference_product`), so any scalar function of parameters
will do.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from equilibrate.curvature import Distribution, draw
from equilibrate.curvature.checks import listed
from equilibrate.curvature.estimate import Estimate, HessianOperator


def estimate_equilibration(
    hessian: HessianOperator,
    parameters: Sequence[Tensor],
    *,
    probes: int = 100,
    distribution: Distribution = "gaussian",
    seed: int = 0,
) -> Estimate:
    """Estimate D_E = sqrt(diag(H^2)), the row norms of H: the paper's equation 10.

    E[(Hv)_i^2] = sum_jk H_ij H_ik E[v_j v_k] = sum_j H_ij^2 for every v with E[v v^T] = I. The
    root of the mean is returned; its standard error is that of the mean over 2 D (delta method).
    With k normal vectors it is near 0.71/sqrt(k) of the value.

    Example:
        >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> from equilibrate import LossHessian
        >>> found = estimate_equilibration(
        ...     LossHessian((w**3).sum(), [w]), [w], probes=4, distribution="rademacher")
        >>> found.value, found.standard_error
        ([tensor([ 6., 12.])], [tensor([0., 0.])])
    """
    mean, error, unit = _mean(
        lambda v, hv: hv.square(), 2, hessian, parameters, probes, distribution, seed
    )
    root = [m.sqrt() for m in mean]
    spread = [torch.where(r > 0, e / (2 * r), e) for r, e in zip(root, error, strict=True)]
    return Estimate(_times(unit, root), _times(unit, spread), probes)


def estimate_jacobi(
    hessian: HessianOperator,
    parameters: Sequence[Tensor],
    *,
    probes: int = 100,
    distribution: Distribution = "rademacher",
    seed: int = 0,
) -> Estimate:
    """Estimate D_J = |diag(H)| by |mean of v * Hv| (Bekas et al. 2007; section 6 of the paper).

    E[v_i (Hv)_i] = sum_j H_ij E[v_i v_j] = H_ii. With k vectors the variance is (r^2 - H_ii^2)/k
    for signs and (r^2 + H_ii^2)/k for normals, r the row norm. The absolute value of a mean that
    is mostly noise is biased upwards: compare value and standard error before believing it.

    Example:
        >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> from equilibrate import LossHessian
        >>> estimate_jacobi(LossHessian(-(w**3).sum(), [w]), [w], probes=4).value
        [tensor([ 6., 12.])]
    """
    mean, error, unit = _mean(
        lambda v, hv: v * hv, 1, hessian, parameters, probes, distribution, seed
    )
    return Estimate(_times(unit, [m.abs() for m in mean]), _times(unit, error), probes)


def _mean(
    statistic: Callable[[Tensor, Tensor], Tensor],
    degree: int,
    hessian: HessianOperator,
    parameters: Sequence[Tensor],
    probes: int,
    distribution: Distribution,
    seed: int,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return mean and standard error of a statistic of (v, Hv / unit), and the unit.

    By Welford's one-pass update. An element's unit is its largest |Hv| so far: squares of Hv itself
    would overflow, or vanish, where Hv is still a number. `degree` is the statistic's in Hv.
    """
    if probes < 2:
        raise ValueError(f"probes must be at least 2 to give a standard error, got {probes}")
    like = [p.detach() for p in listed(parameters)]
    mean = [torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in like]
    squares = [torch.zeros_like(m) for m in mean]
    unit = [torch.full_like(m, torch.finfo(m.dtype).tiny) for m in mean]
    for k in range(1, probes + 1):
        vectors = draw(distribution, like, seed=seed, probe=k - 1)
        for m, s, u, v, hv in zip(mean, squares, unit, vectors, hessian(vectors), strict=True):
            product = hv.to(m.dtype)
            shrunk = _grow_(u, product) ** degree
            sample = statistic(v.to(m.dtype), product / u)
            m *= shrunk
            s *= shrunk.square()
            delta = sample - m
            m += delta / k
            s += delta * (sample - m)
    return mean, [(s / (probes * (probes - 1))).sqrt() for s in squares], unit


def _grow_(unit: Tensor, product: Tensor) -> Tensor:
    """Make the unit |Hv| where that is larger; return the old unit in terms of the new one."""
    larger = torch.maximum(unit, product.abs())
    old = unit / larger
    unit.copy_(larger)
    return old


def _times(unit: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
    return [u * value for u, value in zip(unit, values, strict=True)]
