"""The cases that every law runs over: small networks with a loss, in double precision."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

DOUBLE = torch.float64


@dataclass(frozen=True)
class Case:
    """A network, a batch and a loss; `build` makes a new, equal copy each time."""

    name: str
    build: Callable[[], tuple[nn.Module, Callable[[nn.Module], Tensor]]]

    def parameters_and_loss(self) -> tuple[list[nn.Parameter], Callable[[], Tensor]]:
        model, loss = self.build()
        return list(model.parameters()), lambda: loss(model)

    def values_and_function(self) -> tuple[list[Tensor], Callable[[list[Tensor]], Tensor]]:
        """The same as a function of a list of tensors."""
        model, loss = self.build()
        names = [name for name, _ in model.named_parameters()]

        def function(values: list[Tensor]) -> Tensor:
            return loss(_Swapped(model, dict(zip(names, values, strict=True))))

        return [p.detach().clone() for p in model.parameters()], function


class _Swapped:
    """A model called with other parameters than its own."""

    def __init__(self, model: nn.Module, parameters: dict[str, Tensor]) -> None:
        self.model, self.parameters = model, parameters

    def __call__(self, *inputs: Tensor) -> Tensor:
        return torch.func.functional_call(self.model, self.parameters, inputs)


def _data(rows: int, columns: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, dtype=DOUBLE, generator=generator)


def _seeded(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give a network the same double-precision weights every time, from its own generator."""
    generator = torch.Generator().manual_seed(seed)
    model = model.to(DOUBLE)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, dtype=DOUBLE, generator=generator) * 0.7)
    return model


class Saddle(nn.Module):
    """Two parameters' worth of indefinite curvature at every scale: products and a cosine."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor([0.3, -0.2, 0.5], dtype=DOUBLE))
        self.b = nn.Parameter(torch.tensor([[1.0, -0.4], [0.2, 0.1]], dtype=DOUBLE))

    def forward(self) -> Tensor:
        outer = (self.a[:2] * (self.b @ self.a[1:])).sum()
        return outer + 3 * torch.cos(self.a).sum() * self.b[0, 0] - (self.b**4).sum() / 4


def _saddle() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    return Saddle(), lambda model: model()


def _logistic() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    x, y = _data(12, 5, 1), (_data(12, 1, 2) > 0).to(DOUBLE)
    model = _seeded(nn.Linear(5, 1, bias=False))
    return model, lambda m: functional.binary_cross_entropy_with_logits(m(x), y)


def logistic_hessian(weight: Tensor) -> Tensor:
    """X^T diag(s (1 - s)) X / n, the Hessian of logistic regression in closed form."""
    x = _data(12, 5, 1)
    s = torch.sigmoid(x @ weight.reshape(-1))
    return x.T @ ((s * (1 - s))[:, None] * x) / len(x)


def _network() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    x, y = _data(16, 6, 3), _data(16, 3, 4)
    model = _seeded(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)))
    return model, lambda m: (m(x) - y).square().mean()


def _convolution() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    x, y = _data(8, 36, 5).view(8, 1, 6, 6), torch.arange(8) % 3
    layers = [nn.Conv2d(1, 3, 3), nn.GELU(), nn.Flatten(), nn.Linear(48, 3)]
    return _seeded(nn.Sequential(*layers)), lambda m: functional.cross_entropy(m(x), y)


def _deep() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    x = torch.sigmoid(_data(20, 20, 6))
    sizes = [20, 19, 6, 19, 20]
    layers: list[nn.Module] = []
    for i in range(4):
        layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.Sigmoid()]
    model = _seeded(nn.Sequential(*layers[:-1]))
    return model, lambda m: functional.binary_cross_entropy_with_logits(m(x), x)


SADDLE = Case("saddle", _saddle)
LOGISTIC = Case("logistic", _logistic)
NETWORK = Case("network", _network)
CONVOLUTION = Case("convolution", _convolution)
DEEP = Case("deep autoencoder", _deep)  # 1,052 parameters

CASES = [SADDLE, LOGISTIC, NETWORK, CONVOLUTION, DEEP]
SMALL = [SADDLE, LOGISTIC, NETWORK]
