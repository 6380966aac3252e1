"""A badly scaled fit without noise: the rates of a linear ODE, from 1e-3 to 1e3, by its paths.

    x' = -K x,  x(0) = 1,  y = C x,        K = diag(k),

seen at times from 1e-4 to 1e4, evenly spaced on a logarithmic scale. Learned are the seven rates k
themselves, not their logarithms, and the mixing C. The path is that of the exact solution, so a
step moves a rate of 1e3 and one of 1e-3 by the same formula exp(-k t).

Why this is hard: near the solution H_ij is of the size of 1 / (k_i k_j) for two rates. Its row
norms 1 / (k_i min k) make steps of the size of the least rate, everywhere; the row-and-column
scaling 1 / k_i^2 makes steps in proportion to each rate.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from equilibrate.study.problem import Problem

DECADES = tuple(range(-3, 4))
OUTPUTS = 5
TIMES = 200
_WRONG = 0.3  # the guess is off by up to this many decades


class Decays(nn.Module):
    """The model: rates by their size, for a growing exponential would overflow, and the mixing."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.rates = nn.Parameter(10.0 ** torch.tensor(DECADES, dtype=torch.float32))
        self.mixing = nn.Parameter(0.3 * torch.randn(OUTPUTS, len(DECADES), generator=generator))

    def forward(self, times: Tensor) -> Tensor:
        """Return the path at times [n, 1], [n, outputs]."""
        return path(times, self.rates, self.mixing)


def path(times: Tensor, rates: Tensor, mixing: Tensor) -> Tensor:
    """Return y(t) = C exp(-|k| t).

    Example:
        >>> path(torch.zeros(1, 1), torch.tensor([1.0, 5.0]), torch.tensor([[2.0, 3.0]]))
        tensor([[5.]])
    """
    return (-times * rates.abs()).exp() @ mixing.mT


def decays_problem(instance: int = 0) -> Problem:
    """Return the problem of one set of rates and mixings; the whole data is one batch.

    Example:
        >>> problem = decays_problem(instance=1)
        >>> problem.updates_per_epoch, problem.network(0)(problem.cases[0]).shape
        (1, torch.Size([200, 5]))
    """

    def model(seed: int) -> nn.Module:
        return Decays(torch.Generator().manual_seed(seed))

    def data() -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(instance)
        wrong = _WRONG * (2 * torch.rand(len(DECADES), generator=generator) - 1)
        rates = 10.0 ** (torch.tensor(DECADES) + wrong)
        mixing = torch.randn(OUTPUTS, len(DECADES), generator=generator)
        times = torch.logspace(-4, 4, TIMES).unsqueeze(1)
        return times, path(times, rates, mixing)

    return Problem(f"decays #{instance}", model, data, mse_loss, mse_loss, TIMES)
