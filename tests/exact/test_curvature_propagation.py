"""Section 6, the estimator of Martens et al. 2012 beside that of Bekas et al. 2007: row T22."""

import math

import pytest
import torch
from torch.nn import functional

from equilibrate import exact, hessian
from tests.exact.matrices import DOUBLE, normal

PROBES = 20_000
LIMIT = 5.0  # standard errors: one chance in 1.7 million per comparison

ACTIVATIONS = {"tanh": torch.tanh, "sigmoid": torch.sigmoid}
SIZES = {"one hidden layer": [3, 4, 2], "two hidden layers": [3, 4, 3, 2]}


def _layers(sizes, seed=0):
    shapes = zip(sizes[1:], sizes[:-1], strict=True)
    return [
        (normal(o, i, seed=10 * seed + n), normal(o, seed=50 + n))
        for n, (o, i) in enumerate(shapes)
    ]


def _run(layers, activation, x):
    for n, (weight, bias) in enumerate(layers):
        x = (activation(x) if n else x) @ weight.T + bias
    return x


def squared(z):
    return (z - 0.3).square().mean(-1).sum()


def softmax(z):
    return functional.cross_entropy(z, torch.arange(len(z)) % 2)


def _truth(layers, activation, loss, x):
    """The dense Hessian, by double backward."""
    parameters = [p.clone().requires_grad_() for layer in layers for p in layer]
    pairs = list(zip(parameters[::2], parameters[1::2], strict=True))
    return hessian(loss(_run(pairs, activation, x)), parameters)


def _flat(samples):
    return torch.cat([s.flatten(1) for pair in samples for s in pair], 1)


@pytest.mark.parametrize("distribution", ["gaussian", "rademacher"])
@pytest.mark.parametrize("loss", [squared, softmax])
@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_t22_it_is_unbiased(sizes, activation, loss, distribution):
    layers, x = _layers(sizes), normal(3, 3, seed=9)
    samples = _flat(
        exact.curvature_propagation(
            layers, activation, loss, x, probes=PROBES, distribution=distribution
        )
    )
    truth = _truth(layers, activation, loss, x).diagonal()
    error = samples.std(0) / math.sqrt(PROBES)
    assert bool(((samples.mean(0) - truth).abs() <= LIMIT * error + 1e-12).all())
    assert float((error / truth.abs().clamp(min=1e-3)).median()) < 0.05  # it would see a bias


def _parts(layers, activation, loss, x):
    """P and Q of each entry for one sample and one hidden layer: what adds up to H_ii = P - Q."""
    (w, b), (u, c) = layers
    a = (x @ w.T + b)[0]
    h = activation(a)
    first = torch.func.vmap(torch.func.grad(activation))(a)
    second = torch.func.vmap(torch.func.grad(torch.func.grad(activation)))(a)
    z = h @ u.T + c
    inner = torch.func.hessian(lambda z: loss(z[None]))(z)
    own = second * (torch.func.grad(lambda z: loss(z[None]))(z) @ u)
    positive = first.square() * (u.T @ inner @ u).diagonal() + own.clamp(min=0)
    negative = (-own).clamp(min=0)
    outer = inner.diagonal()
    ones = torch.ones_like(x[0])

    def spread(entry, inputs):
        return torch.cat([torch.outer(entry, inputs.square()).flatten(), entry])

    p = torch.cat([spread(positive, x[0]), spread(outer, h)])
    q = torch.cat([spread(negative, x[0] * ones), spread(0 * outer, h)])
    return p, q


@pytest.mark.parametrize("loss", [squared, softmax])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_t22_the_variance_is_twice_the_squares_of_what_adds_up(loss, seed):
    """Normal noise, one sample: 2 P^2 + 2 Q^2. The paper's H_ii^2 is never reached."""
    layers, x = _layers([3, 4, 2], seed), normal(1, 3, seed=20 + seed)
    samples = _flat(
        exact.curvature_propagation(layers, torch.tanh, loss, x, probes=PROBES, seed=seed)
    )
    truth = _truth(layers, torch.tanh, loss, x).diagonal()
    p, q = _parts(layers, torch.tanh, loss, x)
    torch.testing.assert_close(p - q, truth, rtol=1e-9, atol=1e-12)
    squares = (samples - truth).square()
    variance, error = squares.mean(0), squares.std(0) / math.sqrt(PROBES)
    derived = 2 * p.square() + 2 * q.square()
    assert bool(((variance - derived).abs() <= LIMIT * error + 1e-12).all())
    assert bool((derived >= 2 * truth.square() * (1 - 1e-9)).all())
    # Where nothing cancels it is 2 H_ii^2, measurably not H_ii^2; where something does, far more.
    plain = (q == 0) & (truth.abs() > 1e-6)
    torch.testing.assert_close(derived[plain], 2 * truth[plain].square(), rtol=1e-9, atol=1e-15)
    off = (variance - truth.square())[plain] / error[plain]
    assert float(off.min()) > LIMIT
    assert float((derived / truth.square())[q > 0].max()) > 2.5


def test_t22_which_is_better_depends():
    """Variances of both, measured from as many draws: each wins some entries of one network."""
    layers, x = _layers([3, 4, 2], 0), normal(1, 3, seed=20)
    matrix = _truth(layers, torch.tanh, squared, x)
    martens = _flat(exact.curvature_propagation(layers, torch.tanh, squared, x, probes=PROBES))
    signs = torch.randint(0, 2, (PROBES, len(matrix))).to(DOUBLE) * 2 - 1
    bekas = signs * (signs @ matrix)
    derived = matrix.square().sum(-1) - matrix.diagonal().square()
    error = (bekas - matrix.diagonal()).square().std(0) / math.sqrt(PROBES)
    assert bool(((bekas.var(0) - derived).abs() <= LIMIT * error + 1e-9).all())
    wins = martens.var(0) < bekas.var(0)
    assert 0 < int(wins.sum()) < len(matrix)


def test_t22_signs_are_exact_where_one_path_leads_to_the_loss():
    """A single output: s_i t_i = (H_ii) v^2 with v = +-1, no variance at all."""
    layers, x = [(normal(1, 4, seed=0), normal(1, seed=1))], normal(2, 4, seed=2)
    samples = _flat(
        exact.curvature_propagation(
            layers, torch.tanh, squared, x, probes=5, distribution="rademacher"
        )
    )
    truth = _truth(layers, torch.tanh, squared, x).diagonal()
    torch.testing.assert_close(samples, truth.expand(5, -1))
