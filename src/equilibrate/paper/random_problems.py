"""Random softmax problems of Figure 2 and their exact Hessians, in float64 and in closed form.

Logistic regression (no hidden layer) and networks with one hidden layer of sigmoid units; inputs,
weights and biases are standard normal, targets uniform. With z the logits, p = softmax(z), J the
Jacobian of z and r = p - target, both averaged over the samples,

    H = J' (diag(p) - p p') J  +  sum_c r_c  d^2 z_c,

the first term being the Gauss-Newton matrix. Only weights of one hidden unit, incoming with
incoming and incoming with outgoing, meet in the second. `curvature.hessian` is the slow reference.

The softmax does not change when a constant is added to all logits: with weights for every class H
has an exact null space, one direction for each hidden unit and one for the biases. By default the
last class is the reference whose logit is zero, which takes out exactly these directions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Size:
    """How large a random problem is; `hidden` zero means logistic regression."""

    hidden: int
    inputs: int
    classes: int
    samples: int
    every_class: bool = False  # weights for the last class too: the null space stays in

    @property
    def outputs(self) -> int:
        """Return the number of logits that have parameters."""
        return self.classes if self.every_class else self.classes - 1

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        features = self.hidden or self.inputs
        return self.outputs * (features + 1) + self.hidden * (self.inputs + 1)

    @property
    def null_directions(self) -> int:
        """Return the dimension of the exact null space that the softmax makes."""
        return (self.hidden or self.inputs) + 1 if self.every_class else 0


@dataclass(frozen=True)
class Problem:
    """One problem; the last column of `inputs`, `outgoing` and `incoming` belongs to the bias."""

    inputs: Tensor  # (samples, inputs + 1), the last column ones
    targets: Tensor  # (samples,)
    outgoing: Tensor  # (outputs, features + 1)
    incoming: Tensor | None  # (hidden, inputs + 1)


def random_problem(size: Size, seed: int) -> Problem:
    """Draw inputs, weights and biases from N(0, 1) and targets uniformly."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    ones = torch.ones(size.samples, 1, dtype=torch.float64)
    inputs = torch.cat([normal(size.samples, size.inputs), ones], 1)
    targets = torch.randint(size.classes, (size.samples,), generator=generator)
    outgoing = normal(size.outputs, (size.hidden or size.inputs) + 1)
    incoming = normal(size.hidden, size.inputs + 1) if size.hidden else None
    return Problem(inputs, targets, outgoing, incoming)


def features(problem: Problem, incoming: Tensor | None) -> Tensor:
    """Return what the output layer sees: the sigmoid units, or the inputs, and a one."""
    if incoming is None:
        return problem.inputs
    units = torch.sigmoid(problem.inputs @ incoming.T)
    return torch.cat([units, problem.inputs[:, -1:]], 1)


def loss(problem: Problem, outgoing: Tensor, incoming: Tensor | None, classes: int) -> Tensor:
    """Return the mean cross-entropy, as a function of the parameters."""
    logits = features(problem, incoming) @ outgoing.T
    missing = logits.new_zeros(len(logits), classes - logits.shape[1])
    return torch.nn.functional.cross_entropy(torch.cat([logits, missing], 1), problem.targets)


def hessians(problem: Problem, classes: int) -> tuple[Tensor, Tensor]:
    """Return the Hessian and its Gauss-Newton part; order: outgoing, then incoming, row-major."""
    seen = features(problem, problem.incoming)
    logits = seen @ problem.outgoing.T
    missing = logits.new_zeros(len(logits), classes - logits.shape[1])
    p = torch.softmax(torch.cat([logits, missing], 1), 1)[:, : logits.shape[1]]
    target = torch.nn.functional.one_hot(problem.targets, classes)[:, : logits.shape[1]]
    jacobian = _jacobian(problem, seen)
    bent = p.unsqueeze(-1) * (jacobian - torch.einsum("nc,nci->ni", p, jacobian).unsqueeze(1))
    gauss_newton = jacobian.flatten(0, 1).T @ bent.flatten(0, 1) / len(seen)
    gauss_newton = (gauss_newton + gauss_newton.T) / 2
    if problem.incoming is None:
        return gauss_newton, gauss_newton
    return gauss_newton + _residual_term(problem, seen, (p - target) / len(seen)), gauss_newton


def _jacobian(problem: Problem, seen: Tensor) -> Tensor:
    """Return dz_c / dtheta, (samples, outputs, parameters)."""
    outputs = len(problem.outgoing)
    axes = torch.eye(outputs, dtype=seen.dtype)
    outgoing = torch.einsum("cd,nj->ncdj", axes, seen).flatten(2)
    if problem.incoming is None:
        return outgoing
    slope = seen[:, :-1] * (1 - seen[:, :-1])
    weights = problem.outgoing[:, :-1]
    incoming = torch.einsum("cj,nj,ni->ncji", weights, slope, problem.inputs).flatten(2)
    return torch.cat([outgoing, incoming], 2)


def _residual_term(problem: Problem, seen: Tensor, residual: Tensor) -> Tensor:
    """Return sum_c r_c d^2 z_c: one block for each hidden unit."""
    assert problem.incoming is not None
    units, inputs = seen[:, :-1], problem.inputs
    slope = units * (1 - units)
    bend = slope * (1 - 2 * units) * (residual @ problem.outgoing[:, :-1])
    (outputs, wide), (hidden, deep) = problem.outgoing.shape, problem.incoming.shape
    first = outputs * wide
    term = seen.new_zeros(first + hidden * deep, first + hidden * deep)
    each = torch.arange(hidden)
    own = term[first:, first:].view(hidden, deep, hidden, deep)
    own[each, :, each, :] = torch.einsum("nj,ni,nl->jil", bend, inputs, inputs)
    mixed = term[:first, first:].view(outputs, wide, hidden, deep)
    mixed[:, each, each, :] = torch.einsum("nc,nj,ni->cji", residual, slope, inputs)
    term[first:, :first] = term[:first, first:].T
    return term
