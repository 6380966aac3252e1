"""The methods of the momentum study with more damping: a few settings each, trained to the end.

With damping far above D, g / (D + damping) is a plain gradient step: a method that divides becomes
NAG at the rate lr / damping. In the rounds of `falling_arms` ESGD was damped by a share of each
tensor's own mean, so that where D is small steps stay long, and where it falls they grow. Here the
damping is one number for all tensors and for the whole run: on MNIST about half of the mean of D at
the start, on CURVES-like images a fifth of it (that mean, over elements with any curvature, is 1.1
and 0.7; Jacobi's 0.09 and 0.06). On the small auto-encoders of `benchmarks.strong_damping` such
dampings ended below NAG. Learning rates are those at which elements of the decoder move as NAG's do
at its best.

The rounds of `falling_arms` chose their winners at 120,000 updates, and other ones were better at
750,000. So nothing is chosen on the way here: every setting trains to the end, and the winner, the
lowest of them, with two more seeds. The others are treated alike: RMSProp, with a memory of 2,000
steps, and Jacobi are damped more as well; NAG has momenta above its best so far, and lower rates on
CURVES-like images; Adam, which liked neither more damping nor a larger beta1, has lower rates.

On MNIST ESGD failed at both settings, at 2.2 and 2.8 times the edge of stability of its damping at
the start (`benchmarks.edge_of_damping`). The second round, two settings more for everyone, came
after that: ESGD at half and at twice the mean of D, the learning rate at 0.9 and 1.7 edges, for the
more it is damped the nearer it is to NAG, whose best is at 2.5. While it was planned, both had made
16,000 updates on a CPU, and neither had jumped. NAG has a lower rate and a larger momentum; RMSProp
and Adam lie around their best of `falling_arms`, Jacobi has lower rates.

What is next for everyone was written down before any of it was trained. On MNIST NAG won by a
momentum of 0.9975, so all that rise get larger momenta, and Adam lower rates. On CURVES-like images
one seed of ESGD's winner drifted off and died (`benchmarks.drift`): it gets a floor under the mean
of D, or twice the damping; Jacobi too; the others lie around their best.

The third pair on CURVES-like images was written down before any of it was trained, too. NAG had won
by a momentum of 0.9995, and ESGD with the floor had failed at no seed, with 0.9975: both get larger
momenta. RMSProp lies around its best again; Adam has higher rates, which did better in the two
studies before; Jacobi, which gained by twice the damping, has four times as much.

Linear codes have two settings of each method as well, those of the round that was best with sigmoid
ones: on CURVES-like images the last, which holds every method's best; on MNIST the second, which
holds NAG's and ESGD's (of the others nothing was known there). They were written down before any of
it was trained at this size.
"""

from collections.abc import Mapping
from typing import Any

Settings = Mapping[str, Any]

_FALLS = {"lr_schedule": "cosine"}
_RISES = {**_FALLS, "momentum_schedule": "sutskever"}
_LONG = 0.9995  # a memory of 2,000 steps


def _nag(lr: float, momentum: float) -> Settings:
    return {**_RISES, "nesterov": True, "lr": lr, "momentum": momentum}


def _rmsprop(lr: float, momentum: float, eps: float) -> Settings:
    return {**_RISES, "alpha": _LONG, "lr": lr, "momentum": momentum, "eps": eps}


def _adam(lr: float, beta1: float) -> Settings:
    return {**_FALLS, "lr": lr, "betas": (beta1, 0.999)}


def _divided(lr: float, momentum: float, damping: float) -> Settings:
    """ESGD, or Jacobi."""
    own = {"damping": damping, "damping_kind": "absolute", "decay": _LONG}
    return {**_nag(lr, momentum), **own}


_MNIST: dict[str, list[Settings]] = {
    "nag": [_nag(0.0127, 0.995), _nag(0.019, 0.995)],
    "rmsprop": [_rmsprop(7e-5, 0.99, 1e-4), _rmsprop(1e-4, 0.9925, 1e-3)],
    "adam": [_adam(0.0015, 0.8), _adam(0.0015, 0.9)],
    "jacobi": [_divided(0.0045, 0.99, 0.06), _divided(0.008, 0.9925, 0.2)],
    "esgd": [_divided(0.05, 0.9925, 0.6), _divided(0.04, 0.995, 0.6)],
}
_CURVES: dict[str, list[Settings]] = {
    "nag": [_nag(0.008, 0.999), _nag(0.012, 0.999)],
    "rmsprop": [_rmsprop(3e-5, 0.99, 1e-4), _rmsprop(5e-5, 0.995, 1e-3)],
    "adam": [_adam(0.0011, 0.9), _adam(0.0011, 0.95)],
    "jacobi": [_divided(0.003, 0.99, 0.04), _divided(0.006, 0.995, 0.1)],
    "esgd": [_divided(0.03, 0.9975, 0.15), _divided(0.02, 0.999, 0.15)],
}

_MNIST_AGAIN: dict[str, list[Settings]] = {
    "nag": [_nag(0.0085, 0.995), _nag(0.0085, 0.9975)],
    "rmsprop": [_rmsprop(7e-5, 0.98, 1e-4), _rmsprop(1e-4, 0.98, 1e-3)],
    "adam": [_adam(0.001, 0.8), _adam(0.001, 0.9)],
    "jacobi": [_divided(0.0015, 0.99, 0.06), _divided(0.003, 0.995, 0.2)],
    "esgd": [_divided(0.016, 0.995, 0.6), _divided(0.055, 0.995, 2.5)],
}

_FLOOR = {"mean_floor": True}
_MNIST_NEXT: dict[str, list[Settings]] = {
    "nag": [_nag(0.0085, 0.999), _nag(0.0127, 0.9975)],
    "rmsprop": [_rmsprop(5e-5, 0.99, 1e-4), _rmsprop(7e-5, 0.995, 1e-3)],
    "adam": [_adam(0.0007, 0.9), _adam(0.001, 0.95)],
    "jacobi": [_divided(0.0015, 0.995, 0.06), _divided(0.003, 0.9975, 0.2)],
    "esgd": [_divided(0.016, 0.9975, 0.6), _divided(0.04, 0.9975, 2.5)],
}
_CURVES_NEXT: dict[str, list[Settings]] = {
    "nag": [_nag(0.018, 0.999), _nag(0.012, 0.9995)],
    "rmsprop": [_rmsprop(2e-5, 0.99, 1e-4), _rmsprop(3e-5, 0.98, 1e-4)],
    "adam": [_adam(0.0008, 0.9), _adam(0.0011, 0.8)],
    "jacobi": [{**_divided(0.003, 0.99, 0.04), **_FLOOR}, _divided(0.003, 0.99, 0.08)],
    "esgd": [{**_divided(0.03, 0.9975, 0.15), **_FLOOR}, _divided(0.03, 0.9975, 0.3)],
}

_CURVES_LAST: dict[str, list[Settings]] = {
    "nag": [_nag(0.018, 0.9995), _nag(0.012, 0.9998)],
    "rmsprop": [_rmsprop(4.5e-5, 0.99, 1e-4), _rmsprop(3e-5, 0.995, 1e-4)],
    "adam": [_adam(0.0016, 0.9), _adam(0.0022, 0.95)],
    "jacobi": [_divided(0.003, 0.99, 0.16), _divided(0.003, 0.995, 0.16)],
    "esgd": [{**_divided(0.03, own, 0.15), **_FLOOR} for own in (0.999, 0.9995)],
}

DAMPED: dict[str, tuple[dict[str, list[Settings]], ...]] = {
    "mnist": (_MNIST, _MNIST_AGAIN, _MNIST_NEXT),
    "mnist-linear": (_MNIST_AGAIN,),
    "curves-like": (_CURVES, _CURVES_NEXT, _CURVES_LAST),
    "curves-like-linear": (_CURVES_LAST,),
}
"""The settings of every arm, round by round, by task."""
