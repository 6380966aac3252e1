"""The torch optimizers: schedule, state, saving; no arithmetic of their own."""

from equilibrate.optim.esgd import ALGORITHM_1, ESGD
from equilibrate.optim.jacobi_sgd import JacobiSGD
from equilibrate.optim.rising_momentum import RisingMomentum

__all__ = ["ALGORITHM_1", "ESGD", "JacobiSGD", "RisingMomentum"]
