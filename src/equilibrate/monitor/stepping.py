"""Learning rate times sharpness, of the step that an optimizer really takes, and its limit.

On a quadratic with Hessian H, steps theta <- theta - P g grow where an eigenvalue of P H passes
`stability_limit`. P is lr / D for an optimizer that divides by D, and lr alone for SGD. The step of
others is no such product (Muon, L-BFGS), or of a limit not known here (NAdam), and Adam at step 0
has no D yet: of these nothing is said, for a number beside a limit is read as a verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from equilibrate.monitor.denominators import Group, stability_limit
from equilibrate.monitor.sinks import Record
from equilibrate.monitor.spectrum import Spectrum
from equilibrate.optim.moving import CurvatureOptimizer

OPTIMIZERS, MONITORS = "optimizer's ", "monitor's equilibration"

_DIVIDING = (
    CurvatureOptimizer,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
)
_CHANGES_THE_STEP = ("maximize", "lr_decay")
_FIRST = ": call optimizer.probe(loss) before monitor(loss)"
_FROZEN = 2.0**-40  # of the largest rate: stands for none, which D / lr could not


@dataclass(frozen=True)
class Divisors:
    """What every gradient is divided by in `preconditioned/`, and whose diagonals these are.

    `whose` has an entry by tensor: "optimizer's" and the kind, "monitor's equilibration", or None
    where the tensor has no curvature, so that it makes no difference.
    """

    values: list[Tensor]
    whose: list[str | None]

    @property
    def owners(self) -> str:
        """Whose diagonals are used, in words.

        Example:
            >>> Divisors([], ["optimizer's jacobi", None, "monitor's equilibration"]).owners
            "monitor's equilibration and optimizer's jacobi"
        """
        return " and ".join(sorted({each for each in self.whose if each})) or MONITORS


def takes_plain_steps(optimizer: Optimizer) -> bool:
    """Tell whether the gradient is divided by nothing."""
    return isinstance(optimizer, torch.optim.SGD)


def why_no_product(
    optimizer: Optimizer, groups: Sequence[Group], whose: Sequence[str | None]
) -> str:
    """Return why the step of this optimizer has no product to hold against a limit, or "".

    Example:
        >>> weight = torch.ones(2, requires_grad=True)
        >>> adam, sgd = (make([weight]) for make in (torch.optim.Adam, torch.optim.SGD))
        >>> why_no_product(adam, adam.param_groups, ["monitor's equilibration"])
        'Adam has no diagonal yet for what it trains'
        >>> why_no_product(sgd, sgd.param_groups, ["monitor's equilibration"])
        ''
    """
    name = type(optimizer).__name__
    for setting in _CHANGES_THE_STEP:
        if any(group.get(setting) for group in groups):
            return f"{name} with {setting} has no limit that is known here"
    if takes_plain_steps(optimizer):
        return ""
    if not isinstance(optimizer, _DIVIDING):
        return f"the step of {name} has no limit that is known here"
    if MONITORS not in whose:
        return ""
    probes = isinstance(optimizer, CurvatureOptimizer)
    return f"{name} has no diagonal yet for what it trains{_FIRST if probes else ''}"


def rate_factors(groups: Sequence[Group]) -> list[float]:
    """Return what each D is multiplied by to hold its rate, with the largest taken out of all.

    Empty where the rates are the same: then there is nothing to measure anew.

    Example:
        >>> rate_factors([{"lr": 0.1}, {"lr": 0.4}]), rate_factors([{"lr": 0.1}] * 2)
        ([4.0, 1.0], [])
    """
    rates = [float(group["lr"]) for group in groups]
    top = max(rates)
    if min(rates) == top:
        return []
    return [top / max(rate, _FROZEN * top) for rate in rates]


def product_and_limit(groups: Sequence[Group], stepped: Spectrum) -> Record:
    """Return the largest eigenvalue of P H, and what it may not exceed.

    `stepped` is the spectrum of P H over the largest learning rate.
    """
    top = max(float(group["lr"]) for group in groups)
    return {
        "preconditioned/sharpness_times_lr": top * stepped.largest.value,
        "preconditioned/stability_limit": min(map(stability_limit, groups)),
    }


class Rated(Sequence[Tensor]):
    """Diagonals, each times a number, a tensor at a time: there is no room for a second list."""

    def __init__(self, diagonals: Sequence[Tensor], factors: Sequence[float], plain: bool) -> None:
        """Take diagonals, or with `plain` tensors of their shapes, for the identity."""
        self._diagonals, self._factors, self._plain = diagonals, factors, plain

    def __getitem__(self, index: Any) -> Any:
        found = self._diagonals[index]
        return (torch.ones_like(found) if self._plain else found) * self._factors[index]

    def __len__(self) -> int:
        return len(self._diagonals)
