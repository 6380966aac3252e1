"""What an estimator takes and gives: products with the Hessian, and a value with its error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

HessianOperator = Callable[[list[Tensor]], Sequence[Tensor]]


@dataclass(frozen=True)
class Estimate:
    """A value for each parameter element, its standard error, and the probes it took."""

    value: list[Tensor]
    standard_error: list[Tensor]
    probes: int
