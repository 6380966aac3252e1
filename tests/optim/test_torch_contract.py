"""torch's own checks of an optimizer, for ESGD and JacobiSGD: the update.

The names on the torch side, and the checks that are not here, are in docs/torch-contract.md; the
entries every law runs over are in `entries.py`. Groups, idle steps and errors are in
`test_torch_contract_groups.py`; saving, copying and hooks in `test_torch_contract_state.py`.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD, lr_scheduler

from equilibrate.optim import movement
from tests.optim.entries import (
    OFTEN,
    affine,
    copies,
    identical,
    loss_of,
    network,
    over_all_dtypes,
    over_dtypes,
    over_entries,
    over_kinds,
    step_alone,
    weight_and_bias,
)
from tests.optim.loops import train

SINGLE, DOUBLE, HALF = torch.float32, torch.float64, torch.bfloat16

pytestmark = pytest.mark.filterwarnings("error")


def close(one, other):
    torch.testing.assert_close(list(one), list(other), rtol=None, atol=None)


# The update: one arithmetic, whatever the implementation, layout or type.


@over_all_dtypes
@over_entries
def test_foreach_matches_forloop(entry, dtype):
    """Through steps without gradients, a layer frozen and unfrozen, and an empty parameter."""
    models = [network(dtype), network(dtype)]
    empty = [nn.Parameter(torch.empty(0, dtype=dtype)) for _ in models]
    both = list(zip(models, empty, strict=True))
    optimizers = [
        entry([*model.parameters(), none], foreach=foreach)
        for (model, none), foreach in zip(both, [False, True], strict=True)
    ]
    for i in range(7):
        for (model, none), optimizer in zip(both, optimizers, strict=True):
            model[2].requires_grad_(i not in (3, 4))
            if i == 2:
                step_alone(optimizer)
            else:
                train(optimizer, lambda m=model, e=none: loss_of(m)() + e.sum(), 1)
        close(*[model.parameters() for model in models])
        close(*[[s for p in o.state for s in o.state[p].values()] for o in optimizers])


@over_kinds
def test_foreach_is_the_default(kind, monkeypatch):
    model, called = network(), []
    monkeypatch.setattr(movement.foreach, "step", lambda *_, **__: called.append("foreach"))
    monkeypatch.setattr(movement.reference, "step", lambda *_, **__: called.append("forloop"))
    for foreach in (None, True, False):
        train(kind(model.parameters(), foreach=foreach), loss_of(model), 1)
    assert called == ["foreach", "foreach", "forloop"]


@pytest.mark.parametrize("contiguous", [True, False], ids=["contiguous", "strided"])
@over_entries
def test_forloop_goes_the_right_direction(entry, contiguous):
    weight, bias = weight_and_bias()
    if not contiguous:
        weight, bias = (
            nn.Parameter(torch.stack([p.detach(), p.detach()], -1)[..., 0]) for p in (weight, bias)
        )
    assert weight.is_contiguous() == contiguous
    losses = train(entry([weight, bias], foreach=False), affine(weight, bias), 20)
    assert (losses[-1] < losses[0]) != entry.input.kwargs.get("maximize", False)


def convolution(layout):
    """A network of one convolution, a transposed matrix and a strided vector, or plain ones."""
    generator = torch.Generator().manual_seed(0)
    kernel, matrix, vector = (
        torch.randn(shape, generator=generator, dtype=DOUBLE)
        for shape in [(4, 3, 2, 2), (4, 5), (5,)]
    )
    if layout != "contiguous":
        kernel = kernel.to(memory_format=torch.channels_last)
        matrix = matrix.T.contiguous().T
        vector = torch.stack([vector, vector], 1)[:, 0]
    parameters = [nn.Parameter(kernel), nn.Parameter(matrix), nn.Parameter(vector)]
    images = torch.randn(6, 3, 4, 4, generator=generator, dtype=DOUBLE)

    def loss():
        features = torch.tanh(functional.conv2d(images, parameters[0])).mean((2, 3))
        return (features @ parameters[1] + parameters[2] - 1).square().mean()

    return parameters, loss


@over_entries
def test_memory_layout_changes_nothing(entry):
    (plain, plain_loss), (other, other_loss) = convolution("contiguous"), convolution("other")
    assert [p.is_contiguous() for p in other] == [False] * 3
    one, two = entry(plain), entry(other)
    train(one, plain_loss, 5)
    train(two, other_loss, 5)
    close(plain, other)
    close(one.diagonal(), two.diagonal())
    assert two.state[other[0]]["diagonal"].is_contiguous(memory_format=torch.channels_last)


@over_dtypes
@over_entries
def test_a_tensor_learning_rate_is_a_number(entry, dtype):
    models = [network(dtype), network(dtype)]
    for model, lr in zip(models, [0.125, torch.tensor(0.125)], strict=True):
        train(entry(model.parameters(), lr=lr), loss_of(model), 5)
    assert identical(*[copies(model.parameters()) for model in models])


@pytest.mark.parametrize("foreach", [True, False], ids=["foreach", "forloop"])
@over_entries
def test_a_learning_rate_of_zero_moves_nothing(entry, foreach):
    model = network()
    optimizer = entry(model.parameters(), foreach=foreach)
    train(optimizer, loss_of(model), 3)
    before = copies(model.parameters())
    optimizer.param_groups[0]["lr"] = 0.0
    train(optimizer, loss_of(model), 3)
    assert identical(before, copies(model.parameters()))


@pytest.mark.parametrize("default", [DOUBLE, torch.float16], ids=str)
@over_entries
def test_the_default_dtype_changes_nothing(entry, default):
    models = [network(DOUBLE), network(DOUBLE)]
    for model, dtype in zip(models, [SINGLE, default], strict=True):
        torch.set_default_dtype(dtype)
        try:
            train(entry(model.parameters()), loss_of(model), 4)
        finally:
            torch.set_default_dtype(SINGLE)
    assert identical(*[copies(model.parameters()) for model in models])


@pytest.mark.parametrize("grouped", [True, False], ids=["a group each", "one group"])
@over_entries
def test_mixed_dtypes(entry, grouped):
    dtypes = [DOUBLE, SINGLE, torch.float16, HALF]
    trained = []
    for foreach in (True, False):
        models = nn.ModuleList([network(dtype) for dtype in dtypes])
        groups = [{"params": list(model.parameters())} for model in models]
        optimizer = entry(groups if grouped else models.parameters(), foreach=foreach)
        train(optimizer, lambda m=models: sum(loss_of(each)().double() for each in m), 4)
        trained.append(models)
    assert [p.dtype for p in trained[0].parameters()] == [d for d in dtypes for _ in range(4)]
    wide = [DOUBLE, SINGLE, SINGLE, SINGLE]
    assert [d.dtype for d in optimizer.diagonal()] == [d for d in wide for _ in range(4)]
    close(trained[0].parameters(), trained[1].parameters())
    assert not any(
        map(torch.equal, trained[0].parameters(), nn.ModuleList(map(network, dtypes)).parameters())
    )


# Learning-rate schedulers.

SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=3, gamma=0.5),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, gamma=0.9),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=10),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1, factor=0.5),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(
        o, max_lr=0.1, total_steps=13, cycle_momentum=False
    ),
    "OneCycleLR with momentum": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=13),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, base_lr=0.01, max_lr=0.03, step_size_up=3),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.25), lr_scheduler.ExponentialLR(o, 0.9)],
        milestones=[4],
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
}


def path(optimizer, scheduler, work):
    """The learning rates and momenta of twelve steps; the metric of a plateau is constant."""
    plateau = (1.0,) if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else ()
    visited = []
    for _ in range(12):
        work()
        scheduler.step(*plateau)
        visited.append([(float(g["lr"]), g["momentum"]) for g in optimizer.param_groups])
    return visited


@pytest.mark.parametrize("as_tensor", [False, True], ids=["number", "tensor"])
@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
@over_kinds
def test_schedulers_drive_the_learning_rate(kind, scheduler, as_tensor):
    """Two groups follow the same path as under torch's SGD, and the loss falls."""

    def groups(weight, bias):
        rates = (torch.tensor(0.0625), torch.tensor(0.125)) if as_tensor else (0.0625, 0.125)
        return [{"params": p, "lr": lr} for p, lr in zip((weight, bias), rates, strict=True)]

    sgd = SGD(groups(*weight_and_bias()), momentum=0.5)
    expected = path(sgd, scheduler(sgd), sgd.step)

    weight, bias = weight_and_bias()
    optimizer, losses = kind(groups(weight, bias), momentum=0.5), []
    visited = path(
        optimizer,
        scheduler(optimizer),
        lambda: losses.extend(train(optimizer, affine(weight, bias), 1)),
    )
    assert visited == expected
    assert visited[0] != visited[-1]
    assert losses[-1] < losses[0]


# Problems that any optimizer must make smaller.


def rosenbrock():
    point = nn.Parameter(torch.tensor([1.5, 1.5]))
    return [point], lambda: (1 - point[0]) ** 2 + 100 * (point[1] - point[0] ** 2) ** 2


def least_squares():
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(40, 6, generator=generator) * torch.logspace(-1, 1, 6)
    targets = inputs @ torch.arange(6.0)
    weights = nn.Parameter(torch.zeros(6))
    return [weights], lambda: (inputs @ weights - targets).square().mean()


def classification():
    generator = torch.Generator().manual_seed(6)
    labels = torch.arange(60) % 3
    inputs = torch.randn(60, 2, generator=generator) * 0.3 + 2 * torch.eye(3, 2)[labels]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))
    return model.parameters(), lambda: functional.cross_entropy(model(inputs), labels)


@pytest.mark.parametrize("problem", [rosenbrock, least_squares, classification])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@over_kinds
def test_classic_problems(kind, momentum, problem):
    parameters, loss = problem()
    lr = 0.1 * (1 - momentum)
    losses = train(kind(parameters, lr, momentum=momentum, probe_every=2), loss, 200)
    assert losses[-1] < losses[0] / 10


@over_kinds
def test_maximize_is_descent_of_the_negative(kind):
    up, down = weight_and_bias(), weight_and_bias()
    train(kind(up, maximize=True, **OFTEN), affine(*up), 5)
    train(kind(down, **OFTEN), lambda: -affine(*down)(), 5)
    assert identical(copies(up), copies(down))
