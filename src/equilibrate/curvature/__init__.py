"""Draw a probe vector v and compute its product H v with the Hessian."""

from equilibrate.curvature.dense import hessian, split_like
from equilibrate.curvature.differences import difference_product
from equilibrate.curvature.products import LossHessian, function_product, loss_product
from equilibrate.curvature.vectors import (
    DISTRIBUTIONS,
    Distribution,
    draw,
    draw_elements,
    draw_like,
)

__all__ = [
    "DISTRIBUTIONS",
    "Distribution",
    "LossHessian",
    "difference_product",
    "draw",
    "draw_elements",
    "draw_like",
    "function_product",
    "hessian",
    "loss_product",
    "split_like",
]
