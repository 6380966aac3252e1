"""A badly scaled fit without noise: the rates of a linear ODE, from 1e-3 to 1e3, by its paths.

    x' = -K x,  x(0) = a,  y = C x,        K = diag(k),

seen at times from 1e-4 to 1e4, evenly spaced on a logarithmic scale, through five instruments C
that are known. Learned are the seven rates k themselves, not their logarithms, and the amounts a at
the start. The path is that of the exact solution, a exp(-k t).

Why this is hard: near the solution H_ij is of the size of 1 / (k_i k_j) for two rates. Its row
norms 1 / (k_i min k) make steps of the size of the least rate, everywhere; the row-and-column
scaling 1 / k_i^2 makes steps in proportion to each rate.

Who knows that rates are positive and spread over decades learns their logarithms instead, and the
problem is easy for everybody: `decays-log`, the control.

`decays-batches` is the first one in batches of a quarter of the times. The data are exact all the
same, so that the noise of a gradient goes with the error; but no two updates see one function.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from equilibrate.study.problem import Problem

DECADES = tuple(range(-3, 4))
INSTRUMENTS = 5
TIMES = 200
_WRONG = 0.3  # the guess is off by up to this many decades


class Decays(nn.Module):
    """The model: rates by their size, for a growing exponential would overflow, and amounts."""

    def __init__(self, generator: torch.Generator, *, logarithms: bool = False) -> None:
        super().__init__()
        count, self.logarithms = len(DECADES), logarithms
        decades = torch.tensor(DECADES, dtype=torch.float32)
        self.rates = nn.Parameter(decades * math.log(10) if logarithms else 10.0**decades)
        self.amounts = nn.Parameter(1 + 0.1 * torch.randn(count, generator=generator))

    def forward(self, times: Tensor) -> Tensor:
        """Return what is seen at times [n, 1], [n, instruments]."""
        rates = self.rates.exp() if self.logarithms else self.rates
        return seen(times, rates, self.amounts)

    def extra_repr(self) -> str:
        """Show the setting where a network is printed."""
        return f"logarithms={self.logarithms}"


def seen(times: Tensor, rates: Tensor, amounts: Tensor) -> Tensor:
    """Return y(t) = C (a exp(-|k| t)).

    Example:
        >>> start = seen(torch.zeros(1, 1), torch.ones(7), torch.ones(7))
        >>> bool(torch.allclose(start, instruments(start).sum(1)))
        True
    """
    return (amounts * (-times * rates.abs()).exp()) @ instruments(times).mT


def instruments(like: Tensor) -> Tensor:
    """Return C, in the dtype and on the device of a tensor: each instrument sees every decay."""
    places = torch.arange(INSTRUMENTS * len(DECADES), dtype=like.dtype, device=like.device)
    return (1 + places).sin().view(INSTRUMENTS, len(DECADES))


def decays_problem(instance: int = 0, *, logarithms: bool = False, batch: int = TIMES) -> Problem:
    """Return the problem of one set of rates and amounts; the whole data is one batch.

    Args:
        instance: names the rates and amounts.
        logarithms: learn the logarithms of the rates.
        batch: times in a batch; fewer than all make it another problem, `decays-batches`.

    Example:
        >>> problem = decays_problem(instance=1)
        >>> problem.updates_per_epoch, problem.network(0)(problem.cases[0]).shape
        (1, torch.Size([200, 5]))
    """

    def model(seed: int) -> nn.Module:
        return Decays(torch.Generator().manual_seed(seed), logarithms=logarithms)

    def data() -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(instance)
        wrong = _WRONG * (2 * torch.rand(2, len(DECADES), generator=generator) - 1)
        rates, amounts = 10.0 ** (torch.tensor(DECADES) + wrong[0]), 10.0 ** wrong[1]
        times = torch.logspace(-4, 4, TIMES).unsqueeze(1)
        return times, seen(times, rates, amounts)

    name = "decays-log" if logarithms else "decays"
    name += "-batches" if batch < TIMES else ""
    return Problem(f"{name} #{instance}", model, data, mse_loss, mse_loss, batch)
