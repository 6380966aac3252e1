"""The learning rate that is suggested, by the extreme eigenvalues of D^-1 H, and what it says."""

import math
from dataclasses import dataclass

from equilibrate.monitor.denominators import stability_limit

# Of 1, 1/2, 1/3, 1/4 the largest at which momentum failed nowhere: see `suggest_learning_rate`.
SHARE = 1 / 3

# docs/momentum.md, "Which learning rate"; no other place has these numbers.
_MEASURED = (
    "It is an estimate: on four problems without momentum that edge was 0.5 to 2 times the best "
    "rate of a search, and a third of it 0.16 to 0.68 of the best."
)
_SEARCH = (
    f"{_MEASURED} Start there and search a factor of three to both sides, further up while runs "
    "stay stable."
)
_SEARCH_WITH_MOMENTUM = (
    f"{_MEASURED} With momentum networks have failed near this rate: search downwards first, by "
    "factors of three, and upwards only while runs stay stable."
)


@dataclass(frozen=True)
class SuggestedRate:
    """A learning rate, the estimated edge, and the extreme eigenvalues of D^-1 H behind both.

    Example:
        >>> float(SuggestedRate(lr=0.1, edge=0.3, smallest=-1.0, largest=6.7, products=32))
        0.1
    """

    lr: float
    edge: float  # the rate beyond which steps on this batch's quadratic model grow
    smallest: float
    largest: float
    products: int  # that it took
    momentum: float = 0.0  # that it was asked for

    def __float__(self) -> float:
        return self.lr

    def __str__(self) -> str:
        if math.isinf(self.edge):
            return "lr inf: no curvature was seen at this batch, so that it sets no limit."
        return (
            f"lr {self.lr:.2g}: the eigenvalues of D^-1 H on this batch reach from "
            f"{self.smallest:.3g} to {self.largest:.3g}, so that steps are estimated to turn "
            f"unstable at lr {self.edge:.2g}; this is {self._share()}. "
            f"{_SEARCH_WITH_MOMENTUM if self.momentum else _SEARCH}"
        )

    def _share(self) -> str:
        """Say what `lr` is a third of: the edge, or with heavy-ball momentum Nesterov's."""
        usable = self.lr / SHARE
        if math.isclose(usable, self.edge):
            return "a third of that"
        return (
            f"{self.lr / self.edge:.2g} of that, a third of the edge of Nesterov's momentum, "
            f"{usable:.2g}, because networks fail well below that of heavy-ball momentum"
        )


def rate_and_edge(
    smallest: float, largest: float, momentum: float = 0.0, nesterov: bool = False
) -> tuple[float, float]:
    """Return the rate to start at and the estimated edge, by the extreme eigenvalues of D^-1 H.

        edge = limit(m) / radius,    rate = (2 + 2 m) / (1 + 2 m) / radius / 3

    The rate is a third of the edge without momentum and with Nesterov's, and 1 / (3 (1 + 2 m)) of
    heavy-ball momentum's edge, (2 + 2 m) / radius: 0.12 of it at m = 0.9.

    Example:
        >>> rate_and_edge(-1.0, 20.0)
        (0.03333333333333333, 0.1)
        >>> rate, edge = rate_and_edge(-1.0, 20.0, momentum=0.9)
        >>> round(rate / edge, 2)
        0.12
    """
    radius = max(abs(smallest), abs(largest))
    if radius == 0:
        return math.inf, math.inf
    edge = stability_limit({"momentum": momentum, "nesterov": nesterov}) / radius
    # Heavy-ball momentum has a larger edge of its own, but networks fail far below it.
    usable = stability_limit({"momentum": momentum, "nesterov": True}) / radius
    return SHARE * usable, edge
