"""The same quantities exactly, on a matrix: what estimators and optimizers are held to."""

from equilibrate.exact.diagonals import equilibration, jacobi
from equilibrate.exact.measures import condition_number, cosine_distance

__all__ = ["condition_number", "cosine_distance", "equilibration", "jacobi"]
