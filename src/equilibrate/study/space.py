"""Where a search looks: ranges of hyper-parameters, and the settings drawn from them."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from equilibrate.study.naming import canonical


@dataclass(frozen=True)
class LogUniform:
    """A number between `low` and `high`, uniform on a logarithmic scale.

    Example:
        >>> LogUniform(0.01, 0.1).decades
        1.0
        >>> 0.01 <= LogUniform(0.01, 0.1).draw(random.Random(0)) <= 0.1
        True
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise ValueError(f"a logarithmic range needs 0 < low <= high; got {self}")

    @property
    def decades(self) -> float:
        """The width of the range, in powers of ten."""
        return math.log10(self.high / self.low)

    @property
    def words(self) -> str:
        """The range, for people."""
        return f"{self.low:.3g} to {self.high:.3g}"

    def draw(self, generator: random.Random) -> float:
        """Draw one number, rounded to four digits: a settings file is read by people."""
        exponent = generator.uniform(math.log10(self.low), math.log10(self.high))
        return float(f"{10**exponent:.4g}")


@dataclass(frozen=True)
class Choice:
    """One of a few values, each as likely.

    Example:
        >>> Choice(0.9, 0.95).draw(random.Random(0)) in (0.9, 0.95)
        True
    """

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        object.__setattr__(self, "values", values)

    @property
    def words(self) -> str:
        """The values, for people."""
        return " or ".join(map(str, self.values))

    def draw(self, generator: random.Random) -> Any:
        """Draw one value."""
        return generator.choice(self.values)


Space = Mapping[str, LogUniform | Choice]


def draw_settings(space: Space, count: int, *, name: str, seed: int = 0) -> list[dict[str, Any]]:
    """Draw `count` settings; `name` (of the method) and `seed` name the sequence.

    A longer list begins with the shorter one, so that more trials can be added to a study.

    Example:
        >>> draw_settings({"lr": LogUniform(0.01, 0.1)}, 2, name="sgd")
        [{'lr': 0.07977}, {'lr': 0.01913}]
    """
    drawn = []
    for number in range(count):
        generator = random.Random(canonical([name, seed, number]))
        drawn.append({key: space[key].draw(generator) for key in sorted(space)})
    return drawn
