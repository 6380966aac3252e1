"""Squared gradient: D = sqrt(E[g^2]), the diagonal of RMSProp and Adam, for comparison.

The paper asks how near this comes to equilibration (section 8.2). The optimizers themselves are
torch's own; this folds gradients that a caller has, by the same rule as the curvature diagonals.
"""

from equilibrate.diagonals.equilibration import fold_, magnitude

__all__ = ["fold_", "magnitude"]
