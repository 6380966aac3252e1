"""Equilibrated adaptive learning rates for PyTorch.

Three notions carry everything: a *probe* is a random vector v and its product Hv with the Hessian;
a *diagonal* folds probes into one positive number per parameter; a *step* divides the gradient by
it.
"""

from equilibrate.attention import math_attention
from equilibrate.curvature import (
    LossHessian,
    difference_product,
    draw,
    function_product,
    hessian,
    loss_product,
)
from equilibrate.diagonals import Estimate, estimate_equilibration, estimate_jacobi
from equilibrate.exact import condition_number, cosine_distance
from equilibrate.optim import ALGORITHM_1, ESGD, JacobiSGD, RisingMomentum
from equilibrate.statistics import frozen_statistics

__all__ = [
    "ALGORITHM_1",
    "ESGD",
    "Estimate",
    "JacobiSGD",
    "LossHessian",
    "RisingMomentum",
    "condition_number",
    "cosine_distance",
    "difference_product",
    "draw",
    "estimate_equilibration",
    "estimate_jacobi",
    "frozen_statistics",
    "function_product",
    "hessian",
    "loss_product",
    "math_attention",
]

__version__ = "0.1.0.dev0"
