"""Cosine distances between diagonals that are known by probes alone: literal, and free of noise.

One probe is a sign vector v on a batch of its own, with its product p = Hv and gradient g. Write
a = v * p, so that E[a] = h, the signed diagonal of the mean Hessian, and s = p^2, so that E[s] is
D^2, D the equilibration diagonal as ESGD sees it: it holds the variance between batches too (T17).
A distance between estimates is not the distance between what they estimate. What can be repaired:

1.  Norms, exactly. The entries of v are signs, so a^2 = s, and over k probes

        |h|^2 = (|sum a|^2 - sum s) / (k (k - 1)),    |D|^2 = sum s / k

    without bias: the first is the mean of <a_i, a_j> over all pairs of different probes.

2.  D itself, to order 1/k^2. The root of a mean of k has a bias c/k + O(1/k^2). Leaving out one
    fold of n probes changes c/k to c/(k - n), which tells c (Quenouille 1956). An inner product
    with anything independent is then as good, so where both sides are measured, one comes from one
    half of the probes and the other from the other half.

3.  |h|, between bounds. For weights w >= 0 known or independent, and for every noise,

        E<w, sign(a') a>  <=  <w, |h|>  <=  E<w, |a|>

    where a and a' are independent means: on the left because |E sign(a')| <= 1, on the right by
    Jensen. The left takes a from one fold and a' from all others. For normal noise with variance t
    and entries h whose density f is flat near zero, as wide as the noise, both are off by the same
    amount: E|h + noise| - |h| integrates to f t, and 2 |h| P(wrong sign) to f t' with the variance
    t' of a'. The mean of the bounds, weighted with t and t', is therefore right to the next order;
    it is the value, and the bounds stand beside it.

    Where the noise is larger than most entries the upper bound is far off. Within every tensor
    <w, |h|> <= |w| |h|, and the norms are known by 1., so that the lower of both bounds is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Distances = dict[str, Tensor]  # by pair, one of every trial


@dataclass(frozen=True)
class Folds:
    """Sums over the probes of every fold, (folds, trials, elements), and how many they are."""

    signed: Tensor  # v * Hv
    squares: Tensor  # (Hv)^2
    gradients: Tensor  # g^2
    counts: tuple[int, ...]  # of probes
    sizes: tuple[int, ...]  # of the tensors that the elements belong to

    @property
    def probes(self) -> int:
        """All probes together."""
        return sum(self.counts)

    def some(self, chosen: slice) -> "Folds":
        """Return some of the folds, as views."""
        tensors = (self.signed[chosen], self.squares[chosen], self.gradients[chosen])
        return Folds(*tensors, self.counts[chosen], self.sizes)

    def halves(self) -> tuple["Folds", "Folds"]:
        """Return two halves that share no probe."""
        middle = len(self.counts) // 2
        return self.some(slice(None, middle)), self.some(slice(middle, None))


@dataclass(frozen=True)
class Bounded:
    """A value with what it surely lies between, noise in the bounds themselves aside."""

    value: Tensor
    low: Tensor
    high: Tensor


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner product of every trial's vectors (trials, elements), in float64."""
    return (a * b).sum(-1, dtype=torch.float64)


def norm(a: Tensor) -> Tensor:
    """Return the length of every trial's vector."""
    return dot(a, a).sqrt()


def cosine_distance(a: Tensor, b: Tensor) -> Tensor:
    """Return 1 - cos of the angle between two vectors.

    Example:
        >>> cosine_distance(torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([0.4000], dtype=torch.float64)
    """
    return 1 - dot(a, b) / (norm(a) * norm(b))


def root(sums: Tensor, counts: tuple[int, ...]) -> Tensor:
    """Return the root of the mean over all folds without its bias of order 1/k (2. above)."""
    k, total = sum(counts), sums.sum(0)
    plain = (total / k).sqrt()
    change = torch.zeros_like(plain)
    for fold, n in zip(sums, counts, strict=True):
        change += ((total - fold).clamp(min=0) / (k - n)).sqrt() - plain
    slope = change / sum(1 / (k - n) - 1 / k for n in counts)
    # A root is not negative; where one probe is all there was, the repair may go too far.
    return (plain - slope / k).clamp(min=0)


def least(weights: Sequence[Tensor], sums: Tensor, counts: tuple[int, ...]) -> Tensor:
    """Return the lower bound of <w, |h|> (3.), with weights for every fold that know not of it."""
    total = sums.sum(0)
    parts = [dot(w, (total - fold).sign() * fold) for w, fold in zip(weights, sums, strict=True)]
    return torch.stack(parts).sum(0) / sum(counts)


def greatest(weights: Tensor, sums: Tensor, counts: tuple[int, ...]) -> Tensor:
    """Return the upper bound of <w, |h|> (3.), with weights that know of none of the folds."""
    return dot(weights, sums.sum(0).abs()) / sum(counts)


def by_tensor(values: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the sums over the elements of every tensor, (trials, tensors)."""
    parts = torch.split(values, list(sizes), -1)
    return torch.stack([part.sum(-1, dtype=torch.float64) for part in parts], -1)


def diagonal_squares(folds: Folds) -> Tensor:
    """Return |h|^2 of every tensor, (trials, tensors), without bias (1.)."""
    k, total = folds.probes, folds.signed.sum(0)
    return by_tensor(total.square() - folds.squares.sum(0), folds.sizes) / (k * (k - 1))


def diagonal_norm(folds: Folds) -> Tensor:
    """Return |h|; not a number where the noise leaves nothing."""
    return diagonal_squares(folds).sum(-1).sqrt()


def noise_share(folds: Folds) -> Tensor:
    """Return which share of |a|^2, a the mean of all probes, is the estimator's noise.

    Above one where the unbiased |h|^2 comes out negative.
    """
    mean = folds.signed.sum(0) / folds.probes
    return 1 - diagonal_squares(folds).sum(-1) / dot(mean, mean)


def literal(folds: Folds, rmsprop: Tensor) -> Distances:
    """Return the distances as the paper measured them."""
    equilibration = (folds.squares.sum(0) / folds.probes).sqrt()
    jacobi = folds.signed.sum(0).abs() / folds.probes
    return {
        "rmsprop_equilibration": cosine_distance(rmsprop, equilibration),
        "rmsprop_jacobi": cosine_distance(rmsprop, jacobi),
        "equilibration_jacobi": cosine_distance(equilibration, jacobi),
    }


def noise_free(folds: Folds, rmsprop: Tensor) -> dict[str, Bounded]:
    """Return the distances between what is estimated; RMSProp's own diagonal is as it is.

    `gradient_equilibration` has sqrt(E[g^2]) at these parameters in the place of RMSProp's running
    mean, which is noisy too: it remembers some twenty gradients.
    """
    first, second = folds.halves()
    swapped = ((first, second), (second, first))
    rows_square = by_tensor(folds.squares.sum(0) / folds.probes, folds.sizes)
    rows, diagonal = rows_square.sum(-1).sqrt(), diagonal_norm(folds)
    squared = (folds.gradients.sum(0) / folds.probes).sum(-1, dtype=torch.float64).sqrt()
    known = dot(rmsprop, root(folds.squares, folds.counts))
    other = [dot(root(x.gradients, x.counts), root(y.squares, y.counts)) for x, y in swapped]
    single = _single(rmsprop, folds)
    double = _double(folds, swapped)
    own = by_tensor(rmsprop.square(), folds.sizes)
    return {
        "rmsprop_equilibration": _exact(1 - known / (norm(rmsprop) * rows)),
        "gradient_equilibration": _exact(1 - torch.stack(other).mean(0) / (squared * rows)),
        "rmsprop_jacobi": _distance(single, _most(own, folds), norm(rmsprop) * diagonal),
        "equilibration_jacobi": _distance(double, _most(rows_square, folds), rows * diagonal),
    }


def _single(weights: Tensor, folds: Folds) -> Bounded:
    """Return <weights, |h|> for weights that are known."""
    low = least([weights] * len(folds.counts), folds.signed, folds.counts)
    high = greatest(weights, folds.signed, folds.counts)
    return _between(low, high, folds, 1 / folds.probes)


def _double(folds: Folds, swapped: Sequence[tuple[Folds, Folds]]) -> Bounded:
    """Return <D, |h|>: D from the other folds for the lower bound, from the other half else."""
    every = range(len(folds.counts))
    others = [[i for i in every if i != fold] for fold in every]
    weights = [root(folds.squares[o], tuple(folds.counts[i] for i in o)) for o in others]
    low = least(weights, folds.signed, folds.counts)
    halves = [greatest(root(x.squares, x.counts), y.signed, y.counts) for x, y in swapped]
    return _between(low, torch.stack(halves).mean(0), folds, 2 / folds.probes)


def _between(low: Tensor, high: Tensor, folds: Folds, variance: float) -> Bounded:
    """Return the mean of both bounds, so weighted that their errors cancel.

    `variance` is that of the means in the upper bound, in units of one probe's.
    """
    k = folds.probes
    of_sign = sum(1 / (k - n) for n in folds.counts) / len(folds.counts)
    return Bounded((variance * low + of_sign * high) / (variance + of_sign), low, high)


def _most(squares: Tensor, folds: Folds) -> Tensor:
    """Return the most that <w, |h|> can be, given |w|^2 of every tensor (Cauchy and Schwarz)."""
    return (squares * diagonal_squares(folds).clamp(min=0)).sqrt().sum(-1)


def _exact(distance: Tensor) -> Bounded:
    return Bounded(distance, distance, distance)


def _distance(inner: Bounded, most: Tensor, lengths: Tensor) -> Bounded:
    """Return the distance whose cosine is inner / lengths, the value within its bounds."""
    high = torch.minimum(inner.high, most)
    value = torch.maximum(torch.minimum(inner.value, high), inner.low)
    return Bounded(1 - value / lengths, 1 - high / lengths, 1 - inner.low / lengths)
