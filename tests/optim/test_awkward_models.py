"""Models that break optimizers, each under the same laws: training, measuring, closures, saving."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from equilibrate import ESGD, JacobiSGD, draw, loss_product
from equilibrate.curvature.differences import relative_step
from tests.optim.loops import train, train_by_closure
from tests.optim.watching import same

DOUBLE = torch.float64
Batch = tuple[Tensor, Tensor]
Built = tuple[nn.Module, list[Batch], Callable[[nn.Module, Batch], Tensor]]


@dataclass(frozen=True)
class Awkward:
    """A model, its batches and a loss; `smooth`: differences must agree with exact products."""

    name: str
    build: Callable[[], Built]
    smooth: bool = True


AWKWARD: list[Awkward] = []


def awkward(name: str, *, smooth: bool = True) -> Callable[[Callable[[], Built]], None]:
    def register(build: Callable[[], Built]) -> None:
        AWKWARD.append(Awkward(name, build, smooth))

    return register


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def seeded(model: nn.Module) -> nn.Module:
    """The same double-precision weights every time: normal, smaller for a larger fan-in."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.to(DOUBLE).parameters():
            fan_in = p[0].numel() if p.dim() > 1 and len(p) else 4
            value = torch.randn(p.shape, dtype=DOUBLE, generator=generator)
            p.copy_(value / max(1, fan_in) ** 0.5)
    return model


def regression(model: nn.Module, batch: Batch) -> Tensor:
    x, y = batch
    return (model(x) - y).square().mean()


def vectors_of(width: int, outputs: int = 2, count: int = 2) -> list[Batch]:
    batches = []
    for seed in range(count):
        x = normal(8, width, seed=10 + seed)
        batches.append((x, torch.sin(2 * x[:, :outputs]) + x[:, 1 : outputs + 1]))
    return batches


def sequences(outputs: int = 2) -> list[Batch]:
    return [(normal(4, 3, 4, seed=20 + s), normal(4, 3, outputs, seed=30 + s)) for s in range(2)]


def network(*extra: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), *(extra or (nn.Tanh(),)), nn.Linear(5, 2))


class Wrapped(nn.Module):
    """A network with extra parameters and a forward of its own."""

    def __init__(self, forward: Callable[..., Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._run = forward

    def forward(self, x: Tensor) -> Tensor:
        return self._run(self, x)


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
    """Written out: torch's own has a wrong second derivative (see `test_bad_input`)."""

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


OPTIMIZERS = [ESGD, JacobiSGD]


@pytest.fixture(params=AWKWARD, ids=lambda case: case.name)
def awkward_case(request: pytest.FixtureRequest) -> Awkward:
    found: Awkward = request.param
    return found


@pytest.fixture(params=OPTIMIZERS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[ESGD] | type[JacobiSGD]:
    found: type[ESGD] = request.param
    return found


class Task:
    """One copy of a case; the turn says which batch its loss sees, and which dropout masks."""

    def __init__(self, case: Awkward) -> None:
        self.model, self.batches, self._loss = case.build()
        self.parameters = list(self.model.parameters())
        self.turn = 0

    def __call__(self) -> Tensor:
        return self._loss(self.model, self.batches[self.turn % len(self.batches)])

    def at(self, turn: int) -> "Task":
        self.turn = turn
        torch.manual_seed(turn)
        return self

    def mean_loss(self) -> float:
        """The mean over the batches, with the same masks each time."""
        return fmean(float(self.at(t)().detach()) for t in range(len(self.batches)))


def run(optimizer, task: Task, turns: range, *, closure: bool = False) -> None:
    """Take one step a turn; the closure sees one batch and one random state in all its runs."""
    loop = train_by_closure if closure else train
    for turn in turns:
        loop(optimizer, task.at(turn), 1)


SETTINGS = {"lr": 0.01, "warmup_probes": 20}


@pytest.mark.parametrize("closure", [False, True], ids=["probe", "closure"])
def test_training_lowers_the_loss(awkward_case, kind, closure):
    task = Task(awkward_case)
    before = task.mean_loss()
    run(kind(task.parameters, **SETTINGS), task, range(45), closure=closure)
    assert all(bool(p.isfinite().all()) for p in task.parameters)
    assert task.mean_loss() < before


@pytest.mark.parametrize("distribution", ["rademacher", "gaussian"])
def test_the_diagonal_is_the_mean_of_products_computed_by_hand(awkward_case, kind, distribution):
    task, by_hand, turns, seed = Task(awkward_case), Task(awkward_case), 3, 5
    optimizer = kind(
        task.parameters,
        lr=0.0,
        decay=None,
        probe_every=1,
        warmup_probes=1,
        distribution=distribution,
        seed=seed,
    )
    run(optimizer, task, range(turns))

    parameters = by_hand.parameters
    total = [torch.zeros_like(p, dtype=DOUBLE) for p in parameters]
    trainable = [i for i, p in enumerate(parameters) if p.requires_grad]
    for turn in range(turns):
        vectors = draw(distribution, parameters, seed=seed, probe=turn)
        some = [vectors[i] for i in trainable]
        products = loss_product(by_hand.at(turn)(), [parameters[i] for i in trainable], some)
        for i, product in zip(trainable, products, strict=True):
            product = product.double()
            total[i] += product**2 if kind is ESGD else vectors[i].double() * product
    mean = [(t / turns).sqrt() if kind is ESGD else (t / turns).abs() for t in total]

    found = optimizer.diagonal()
    assert [d.shape for d in found] == [p.shape for p in parameters]
    assert all(
        d.dtype == torch.promote_types(p.dtype, torch.float32)
        for d, p in zip(found, parameters, strict=True)
    )
    assert all(bool((d >= 0).all()) for d in found)
    size = max(float(m.max()) for m in mean if m.numel())
    for d, m in zip(found, mean, strict=True):
        unit = torch.finfo(d.dtype).eps
        torch.testing.assert_close(d.double(), m, rtol=20 * unit, atol=20 * unit * size)
    assert any(bool(d.any()) for d in found)


SMOOTH = [case for case in AWKWARD if case.smooth]


@pytest.mark.parametrize("awkward_case", SMOOTH, ids=lambda case: case.name, indirect=True)
def test_a_closure_measures_what_a_probe_measures(awkward_case, kind):
    """Differences err by e^2 times a third derivative and u/e = e^2/3 times the gradient.

    e is 7e-6, so e^2 is 5e-11; derivatives may exceed the curvature ten thousandfold.
    """
    diagonals = []
    for closure in (False, True):
        task = Task(awkward_case)
        optimizer = kind(task.parameters, lr=0.0, probe_every=1, warmup_probes=3)
        run(optimizer, task, range(3), closure=closure)
        diagonals.append(torch.cat([d.reshape(-1) for d in optimizer.diagonal()]))
    by_probe, by_closure = diagonals
    tolerance = 1e4 * relative_step(DOUBLE) ** 2
    error = torch.linalg.vector_norm(by_closure - by_probe)
    assert error < tolerance * torch.linalg.vector_norm(by_probe)


@pytest.mark.parametrize("closure", [False, True], ids=["probe", "closure"])
def test_going_on_from_a_saved_state_changes_no_bit(awkward_case, kind, closure):
    settings = {"lr": 0.03, "warmup_probes": 3, "probe_every": 4, "momentum": 0.5}
    task = Task(awkward_case)
    optimizer = kind(task.parameters, **settings)
    run(optimizer, task, range(6), closure=closure)  # not at a probing step
    file = io.BytesIO()
    torch.save({"model": task.model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    run(optimizer, task, range(6, 14), closure=closure)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again = Task(awkward_case)
    again.model.load_state_dict(saved["model"])
    resumed = kind(again.parameters, **settings)
    resumed.load_state_dict(saved["optimizer"])
    run(resumed, again, range(6, 14), closure=closure)

    assert same(again.parameters, task.parameters)
    assert same(resumed.state_dict(), optimizer.state_dict())
    assert same(resumed.diagonal(), optimizer.diagonal())
