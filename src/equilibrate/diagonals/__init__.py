"""Fold probes (or gradients) into one positive number per parameter element."""

from equilibrate.curvature.estimate import Estimate
from equilibrate.diagonals.estimates import estimate_equilibration, estimate_jacobi

__all__ = ["Estimate", "estimate_equilibration", "estimate_jacobi"]
