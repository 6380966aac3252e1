"""The same quantities exactly, on a matrix: what estimators and optimizers are held to."""

from equilibrate.exact.absolute import absolute, newton_step, saddle_free_step
from equilibrate.exact.bounds import (
    equilibration_improvement,
    guggenheimer_bound,
    log_equilibration_improvement,
    log_guggenheimer_bound,
    van_der_sluis_factor,
)
from equilibrate.exact.curvature_propagation import curvature_propagation
from equilibrate.exact.diagonals import equilibration, jacobi
from equilibrate.exact.gauss_newton import (
    gauss_newton,
    gauss_newton_diagonal,
    gauss_newton_product,
)
from equilibrate.exact.measures import (
    condition_number,
    cosine_distance,
    rayleigh_quotient,
    spectral_radius,
)
from equilibrate.exact.row_column import row_column
from equilibrate.exact.row_column_stochastic import row_column_stochastic
from equilibrate.exact.transform import inverse_root, left_scaled, transformed

__all__ = [
    "absolute",
    "condition_number",
    "cosine_distance",
    "curvature_propagation",
    "equilibration",
    "equilibration_improvement",
    "gauss_newton",
    "gauss_newton_diagonal",
    "gauss_newton_product",
    "guggenheimer_bound",
    "inverse_root",
    "jacobi",
    "left_scaled",
    "log_equilibration_improvement",
    "log_guggenheimer_bound",
    "newton_step",
    "rayleigh_quotient",
    "row_column",
    "row_column_stochastic",
    "saddle_free_step",
    "spectral_radius",
    "transformed",
    "van_der_sluis_factor",
]
