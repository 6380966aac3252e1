"""How badly a matrix is conditioned, how it is curved, and how far apart two diagonals are."""

import torch
from torch import Tensor

from equilibrate.exact import checks
from equilibrate.exact.norms import split_scale


def condition_number(matrix: Tensor, *, relative_floor: float = 0.0) -> Tensor:
    """Return the ratio of extreme singular values (equation 5), also of indefinite matrices.

    A singular matrix has condition number inf. Singular means up to rounding: the smallest value
    is at most eps times the largest, which is as well as a decomposition knows it.

    Some matrices are singular by construction: the output weights of a softmax can all be shifted
    without any effect. `relative_floor` leaves out the directions whose singular value is at most
    that fraction of the largest one, and compares the rest. State it wherever a number rests on it.

    Example:
        >>> condition_number(torch.diag(torch.tensor([4.0, -2.0])))
        tensor(2.)
        >>> condition_number(torch.diag(torch.tensor([4.0, -2.0, 0.0])))
        tensor(inf)
        >>> condition_number(torch.diag(torch.tensor([4.0, -2.0, 0.0])), relative_floor=1e-6)
        tensor(2.)
    """
    checks.finite_square(matrix)
    if not 0 <= relative_floor < 1:
        raise ValueError(f"relative_floor must be in [0, 1), got {relative_floor}")
    values: Tensor = torch.linalg.svdvals(matrix)
    largest = values[..., 0]
    floor = max(relative_floor, torch.finfo(values.dtype).eps) * largest.unsqueeze(-1)
    left_out = torch.inf if relative_floor > 0 else 0.0
    smallest = values.where(values > floor, left_out).amin(-1)
    return (largest / smallest).where(largest > 0, torch.inf)


def cosine_distance(first: Tensor, second: Tensor) -> Tensor:
    """Return 1 - u.v / (|u| |v|) of two vectors (section 8.2): the angle, whatever the norms.

    It is in [0, 2], and zero for u = v. Both are flattened and must have one shape; the result has
    the wider of their dtypes.

    It is computed as half the squared distance of u / |u| and v / |v|, the same number: that is
    never below zero, and sees angles whose cosine is one up to rounding.

    Example:
        >>> cosine_distance(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 5.0]))
        tensor(1.)
    """
    if first.shape != second.shape:
        shapes = tuple(first.shape), tuple(second.shape)
        raise ValueError(
            f"first and second must have one shape, got {shapes[0]} and {shapes[1]}: reshape one "
            "if their entries belong together in order"
        )
    apart = _direction(first, "first") - _direction(second, "second")
    # Opposite vectors are at two exactly; rounding may go beyond.
    distance = (apart.square().sum() / 2).clamp(max=2)
    return distance.to(torch.promote_types(first.dtype, second.dtype))


def _direction(vector: Tensor, name: str) -> Tensor:
    """Return v / |v| of all entries, in float32 at least: sums over many outgrow a float16."""
    checks.finite(vector, name)
    if not bool(vector.any()):
        raise ValueError(f"{name} must have an entry that is not zero: it has no direction")
    wide = vector.flatten().to(torch.promote_types(vector.dtype, torch.float32))
    scaled, _ = split_scale(wide)
    # Not vector_norm, which adds up millions of squares one by one and loses digits on the way.
    return scaled / scaled.square().sum().sqrt()


def rayleigh_quotient(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return v^T H v / v^T v, the curvature along v (section 5).

    With eigenvalues lambda_j and eigenvectors q_j it is sum_j lambda_j (q_j^T v)^2 / v^T v, a
    weighted mean of eigenvalues; the paper's sum of lambda_j q_j q_j^T v is the vector H v instead.
    Along a coordinate axis it is a diagonal entry, Jacobi's before the absolute value.

    Example:
        >>> rayleigh_quotient(torch.diag(torch.tensor([3.0, -1.0])), torch.tensor([2.0, 2.0]))
        tensor(1.)
    """
    checks.finite_square(matrix)
    checks.length(vector, matrix, "vector")
    checks.finite(vector, "vector")
    vector, _ = split_scale(vector)  # the quotient is free of its size, which may have no square
    size = vector.square().sum(-1)
    if bool((size == 0).any()):
        raise ValueError("vector must not be zero: it has no direction to measure curvature along")
    product = (matrix @ vector.unsqueeze(-1)).squeeze(-1)
    return (vector * product).sum(-1) / size


def spectral_radius(matrix: Tensor) -> Tensor:
    """Return the largest |eigenvalue| of a square matrix, symmetric or not.

    Descent theta <- theta - eta D^-1 g on a quadratic with H definite converges for
    eta < 2 / radius(D^-1 H). For equilibration the radius is at most sqrt(N); for Jacobi it is
    at most N when H is definite, and unbounded when it is not (section 5).

    Example:
        >>> spectral_radius(torch.tensor([[0.0, 4.0], [-1.0, 0.0]])).round(decimals=4)
        tensor(2.)
    """
    checks.finite_square(matrix)
    values: Tensor = torch.linalg.eigvals(matrix)
    return values.abs().amax(-1)
