"""A number with the interval it is sure to lie in, as far as its docstring says."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A value and its bounds, low <= value <= high.

    Example:
        >>> str(Interval(2.0, 1.5, float("inf")))
        '2 [1.5, inf]'
        >>> 1.7 in Interval(2.0, 1.5, 3.0)
        True
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high

    def __truediv__(self, other: "Interval") -> "Interval":
        """Return the quotient of two numbers that are not negative; x / 0 is infinite."""
        return Interval(
            _quotient(self.value, other.value),
            _quotient(self.low, other.high),
            _quotient(self.high, other.low),
        )


def _quotient(above: float, below: float) -> float:
    return above / below if below > 0 else float("inf")
