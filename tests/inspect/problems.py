"""Small problems to inspect: one in double precision for exact answers, and troubled ones."""

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from equilibrate.study.problem import Problem

HOSTILE = 'wave <img src=x onerror=alert(1)> & "co"'


def _data(dtype=torch.float64, cases=60):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(cases, 4, generator=generator, dtype=dtype)
    return x, torch.sin(2 * x[:, :2])


def _network(seed):
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()


small = Problem("small", _network, _data, nn.functional.mse_loss, batch_size=20)
many = Problem("many", _network, lambda: _data(cases=1600), nn.functional.mse_loss, batch_size=20)
hostile = Problem(HOSTILE, _network, _data, nn.functional.mse_loss, batch_size=20)


def _wide(seed):
    layers = [nn.Linear(4, 30), nn.Tanh(), nn.Dropout(0.2), nn.Linear(30, 2)]
    return nn.Sequential(*layers)


wide = Problem("wide", _wide, lambda: _data(torch.float32), nn.functional.mse_loss, batch_size=20)
one_batch = Problem("one batch", _wide, lambda: _data(torch.float32), nn.functional.mse_loss,
                    batch_size=60)  # fmt: skip


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g


class _Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, x):
        return _Once.apply(self.inner(x))


def _frozen(seed):
    return nn.Linear(4, 2).requires_grad_(False)


def _mse(output, targets):
    return (output - targets).square().mean()


def _problem(name, model=lambda seed: nn.Linear(4, 2), loss=_mse, data=None):
    return Problem(name, model, data or (lambda: _data(torch.float32)), loss, batch_size=20)


class Attending(nn.Module):
    """Attention by the kernel that torch picks, or where asked by one with a second derivative.

    In a checkpoint, if asked, where torch's pick has none.
    """

    def __init__(self, math=False, kept=True):
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 2, batch_first=True)
        self.math, self.kept = math, kept

    def forward(self, x):
        if not self.kept:
            return checkpoint(self.attend, x, use_reentrant=False)
        return self.attend(x)

    def attend(self, x):
        with sdpa_kernel(SDPBackend.MATH) if self.math else nullcontext():
            return self.inner(x, x, x, need_weights=False)[0]


def sequences():
    x = torch.randn(60, 5, 4, generator=torch.Generator().manual_seed(0))
    return x, x.roll(1, 1)


def _root(output, targets):
    return (0 * output).square().sum().sqrt() + (0 * output + 1e-30).abs().sqrt().sum()


class _Silent(nn.Module):
    """A loss whose second derivative is infinite where the first is zero."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 2))

    def forward(self, x):
        return (self.weight * 1.0).abs().pow(1.5).sum() + 0 * x.sum()


nothing = _problem("no parameters", lambda seed: nn.Flatten())
frozen = _problem("frozen", _frozen)
nan = _problem("nan", loss=lambda output, targets: (output - targets).log().mean())
vector = _problem("vector", loss=lambda output, targets: (output - targets).square().mean(1))
number = _problem("number", loss=lambda output, targets: 3.0)
linear = _problem("linear", loss=lambda output, targets: output.mean())
detached = _problem("detached", loss=lambda output, targets: _mse(output.detach(), targets))
once = _problem("once", lambda seed: _Wrapped())
attends = _problem("attends", lambda seed: Attending(), data=sequences)
recomputes = _problem("recomputes", lambda seed: Attending(kept=False), data=sequences)
attends_by_math = _problem("attends", lambda seed: Attending(math=True), data=sequences)
shapes = _problem("shapes", lambda seed: nn.Linear(5, 2))
infinite = _problem("infinite", lambda seed: _Silent(), loss=lambda output, targets: output)


class _Awkward(nn.Module):
    """A scalar, an empty tensor, one that is not used, a frozen one, an embedding, half of it."""

    def __init__(self):
        super().__init__()
        self.scalar = nn.Parameter(torch.tensor(0.5))
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.unused = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.table = nn.Embedding(10, 4)
        self.inner = nn.Linear(4, 2)

    def forward(self, tokens):
        return torch.tanh(self.inner(self.table(tokens)) * self.scalar) * self.frozen


def _tokens():
    tokens = torch.arange(60) % 6
    return tokens, torch.stack([tokens, -tokens], 1) / 6.0


awkward = Problem("awkward", lambda seed: _Awkward(), _tokens, _mse, batch_size=20)
