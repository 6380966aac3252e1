"""Models that break optimizers: odd parameters, odd layers, odd ways to run them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from tests.optim.awkward import (
    DOUBLE,
    Awkward,
    Batch,
    Built,
    Wrapped,
    network,
    normal,
    regression,
    seeded,
    sequences,
    vectors_of,
)

AWKWARD: list[Awkward] = []


def awkward(name: str, *, smooth: bool = True) -> Callable[[Callable[[], Built]], None]:
    def register(build: Callable[[], Built]) -> None:
        AWKWARD.append(Awkward(name, build, smooth))

    return register


@awkward("frozen parameters")
def _() -> Built:
    model = seeded(network())
    model[0].weight.requires_grad_(False)
    return model, vectors_of(4), regression


@awkward("unused parameter")
def _() -> Built:
    model = Wrapped(lambda m, x: m.net(x), spare=nn.Parameter(torch.zeros(3)), net=network())
    return seeded(model), vectors_of(4), regression


@awkward("tied weights")
def _() -> Built:
    model = Wrapped(
        lambda m, x: m.out(torch.tanh(m.embed(x))),
        embed=nn.Embedding(6, 4),
        out=nn.Linear(4, 6, bias=False),
    )
    seeded(model)
    model.out.weight = model.embed.weight
    tokens = [torch.tensor([0, 1, 2, 3, 4, 5]), torch.tensor([5, 3, 1, 0, 2, 4])]
    batches = [(x, (x + 1) % 6) for x in tokens]
    return model, batches, lambda m, b: functional.cross_entropy(m(b[0]), b[1])


@awkward("scalar, empty and five-dimensional parameters")
def _() -> Built:
    def forward(m: nn.Module, x: Tensor) -> Tensor:
        deep = torch.tanh(m.five).sum(dim=(0, 3, 4))  # 2 x 2
        return torch.tanh(m.net(x) @ deep * m.scale) + m.nothing.sum()

    model = Wrapped(
        forward,
        scale=nn.Parameter(torch.tensor(1.0)),
        nothing=nn.Parameter(torch.zeros(0, 3)),
        five=nn.Parameter(torch.zeros(1, 2, 2, 1, 3)),
        net=network(),
    )
    return seeded(model), vectors_of(4), regression


@awkward("linear parameters")
def _() -> Built:
    """One tensor wholly linear in the loss, and one element of another."""

    def loss(m: nn.Module, batch: Batch) -> Tensor:
        curved = (m.partly[1:] - 1).square().sum() * (2 + torch.sin(m.partly[2]))
        return regression(m.net, batch) + curved + 0.01 * (m.partly[0] + m.wholly.sum())

    parts = {name: nn.Parameter(torch.zeros(3)) for name in ("partly", "wholly")}
    return seeded(Wrapped(lambda m, x: m.net(x), net=network(), **parts)), vectors_of(4), loss


@awkward("embedding rows never seen")
def _() -> Built:
    model = seeded(nn.Sequential(nn.Embedding(9, 3), nn.Tanh(), nn.Linear(3, 2)))
    tokens = [torch.tensor([1, 1, 2, 4]), torch.tensor([2, 4, 4, 1])]
    return model, [(x, torch.stack([x, -x], -1) / 4) for x in tokens], regression


@awkward("batch normalisation")
def _() -> Built:
    return seeded(network(nn.BatchNorm1d(5), nn.Tanh())), vectors_of(4), regression


@awkward("dropout")
def _() -> Built:
    return seeded(network(nn.Tanh(), nn.Dropout(0.2))), vectors_of(4), regression


def recurrent(kind: type[nn.RNNBase], dtype: torch.dtype = DOUBLE) -> Built:
    model = Wrapped(
        lambda m, x: m.out(m.cell(x)[0]), cell=kind(4, 3, batch_first=True), out=nn.Linear(3, 2)
    )
    batches = [(x.to(dtype), y.to(dtype)) for x, y in sequences()]
    return seeded(model).to(dtype), batches, regression


@awkward("LSTM")
def _() -> Built:
    return recurrent(nn.LSTM)


@awkward("LSTM in float32", smooth=False)
def _() -> Built:
    return recurrent(nn.LSTM, torch.float32)


@awkward("GRU")
def _() -> Built:
    return recurrent(nn.GRU)


@awkward("multi-head attention")
def _() -> Built:
    def forward(m: nn.Module, x: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return m.out(x + m.attention(x, x, x, need_weights=False)[0])

    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    return (
        seeded(Wrapped(forward, attention=attention, out=nn.Linear(4, 2))),
        sequences(),
        regression,
    )


@awkward("scaled dot-product attention")
def _() -> Built:
    def forward(m: nn.Module, x: Tensor) -> Tensor:
        q, k, v = m.qkv(x).unsqueeze(1).chunk(3, -1)
        with sdpa_kernel(SDPBackend.MATH):
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return m.out(x + mixed.squeeze(1))

    model = Wrapped(forward, qkv=nn.Linear(4, 12), out=nn.Linear(4, 2))
    return seeded(model), sequences(), regression


@awkward("checkpointing with dropout")
def _() -> Built:
    def forward(m: nn.Module, x: Tensor) -> Tensor:
        return m.net[3](checkpoint(m.net[:3], x, use_reentrant=False))

    model = Wrapped(forward, net=network(nn.Tanh(), nn.Dropout(0.2)))
    return seeded(model), vectors_of(4), regression


class WeightNorm(nn.Module):
    """Written out: torch's own has a wrong second derivative (see `test_no_second_derivative`)."""

    def forward(self, length: Tensor, direction: Tensor) -> Tensor:
        return length * direction / direction.norm(dim=1, keepdim=True)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return weight.norm(dim=1, keepdim=True), weight


@awkward("weight norm")
def _() -> Built:
    model = network()
    parametrize.register_parametrization(model[0], "weight", WeightNorm())
    return seeded(model), vectors_of(4), regression


@awkward("spectral norm", smooth=False)  # each pass moves its power iteration
def _() -> Built:
    model = seeded(network())
    with torch.random.fork_rng(devices=[]):  # it starts from a random vector
        torch.manual_seed(0)
        parametrizations.spectral_norm(model[0], n_power_iterations=5)
    return model, vectors_of(4), regression


@awkward("layer norm and GELU")
def _() -> Built:
    return seeded(network(nn.LayerNorm(5), nn.GELU())), vectors_of(4), regression


@awkward("module used twice")
def _() -> Built:
    model = Wrapped(
        lambda m, x: m.out(torch.tanh(m.hidden(torch.tanh(m.hidden(x))))),
        hidden=nn.Linear(4, 4),
        out=nn.Linear(4, 2),
    )
    return seeded(model), vectors_of(4), regression


@awkward("channels-last convolution")
def _() -> Built:
    layers = [nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)]
    model = seeded(nn.Sequential(*layers)).to(memory_format=torch.channels_last)
    images = [normal(6, 2, 4, 4, seed=s) for s in (1, 2)]
    batches = [
        (x.to(memory_format=torch.channels_last), x.mean((2, 3)).sin() + x[:, :, 0, 0])
        for x in images
    ]
    return model, batches, regression


@awkward("bfloat16 parameters", smooth=False)
def _() -> Built:
    batches = [(x.bfloat16(), y.bfloat16()) for x, y in vectors_of(4)]
    return seeded(network()).bfloat16(), batches, regression
