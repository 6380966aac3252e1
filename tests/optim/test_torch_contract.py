"""torch's own checks of an optimizer, for ESGD and JacobiSGD: the update and what it works on.

The names on the torch side, and the checks that are not here, are in docs/torch-contract.md; the
entries every law runs over are in `entries.py`; saving, loading and hooks are in
`test_torch_contract_state.py`.
"""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD, lr_scheduler

from equilibrate.optim import moving
from tests.optim.entries import (
    OFTEN,
    OPTIM_DB,
    WRONG_HYPER_PARAMETERS,
    WRONG_PARAMETERS,
    affine,
    copies,
    identical,
    loss_of,
    network,
    over_defaults,
    over_entries,
    weight_and_bias,
)
from tests.optim.loops import train

SINGLE, DOUBLE, HALF = torch.float32, torch.float64, torch.bfloat16
over_dtypes = pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
over_all_dtypes = pytest.mark.parametrize("dtype", [SINGLE, DOUBLE, HALF], ids=str)
over_kinds = pytest.mark.parametrize("kind", [info.optim_cls for info in OPTIM_DB])

pytestmark = pytest.mark.filterwarnings("error")


WEIGHT_DECAY_IS_ROUNDED = (
    "rules.foreach: on a CPU _foreach_mul_ rounds the factor 1 - lr * weight_decay to the "
    "parameter's half type"
)
NOTHING_TO_MEASURE = "a group without trainable parameters stays due for ever, and warns"


def known(request, reason, when=True):
    """A defect that is known: the test must fail until it is mended, then this line goes."""
    if when:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))


def step_alone(optimizer, closure=None):
    """A step without loss or gradients; that a probe would be due by now is not the question."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A probe is due")
        return optimizer.step(closure)


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
    monkeypatch.setattr(moving.foreach, "step", lambda *_, **__: called.append("foreach"))
    monkeypatch.setattr(moving.reference, "step", lambda *_, **__: called.append("forloop"))
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
def test_mixed_dtypes(entry, grouped, request):
    known(request, WEIGHT_DECAY_IS_ROUNDED, when="weight_decay" in entry.input.kwargs)
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


# Parameter groups.


@over_entries
def test_equal_groups_are_one_group(entry):
    one, two = network(DOUBLE), network(DOUBLE)
    train(entry(one.parameters()), loss_of(one), 5)
    train(entry([{"params": p} for p in two.parameters()]), loss_of(two), 5)
    assert identical(copies(one.parameters()), copies(two.parameters()))


@pytest.mark.parametrize("own", [{"lr": 0.5}, {"weight_decay": 0.75}, {"momentum": 0.25}], ids=str)
@over_entries
def test_a_group_moves_by_its_own_hyper_parameters(entry, own):
    """After one step each group is where an optimizer with its arguments alone would be."""

    def after_one_step(make):
        weight, bias = weight_and_bias(DOUBLE)
        train(make(weight, bias), affine(weight, bias), 1)
        return copies([weight, bias])

    groups = after_one_step(lambda w, b: entry([{"params": w}, {"params": [b], **own}]))
    outer, inner = (after_one_step(lambda w, b, kw=kw: entry([w, b], **kw)) for kw in ({}, own))
    assert identical(groups, [outer[0], inner[1]])


@over_entries
def test_only_some_parameters_are_given(entry):
    weight, bias = weight_and_bias()
    before = copies([weight, bias])
    train(entry([{"params": bias, "lr": 0.125}], lr=0.5), affine(weight, bias), 3)
    assert identical(before[0], weight.detach())
    assert not torch.equal(before[1], bias)


@over_entries
def test_a_group_may_be_added_before_the_first_step(entry):
    trained = []
    for late in (False, True):
        weight, bias = weight_and_bias()
        optimizer = entry([weight] if late else [{"params": [weight]}, {"params": [bias]}])
        if late:
            optimizer.add_param_group({"params": bias})
        train(optimizer, affine(weight, bias), 5)
        trained.append(copies([weight, bias]))
    assert identical(*trained)


@over_entries
def test_a_group_added_while_training_is_measured_and_moves(entry):
    weight, bias = weight_and_bias()
    optimizer = entry([weight])
    train(optimizer, affine(weight, bias), 2)
    before, diagonal = bias.detach().clone(), optimizer.diagonal()[0]
    optimizer.add_param_group({"params": [bias], "lr": 0.125})
    assert optimizer.param_groups[1]["momentum"] == optimizer.param_groups[0]["momentum"]
    assert optimizer.probe_due
    train(optimizer, affine(weight, bias), 1)
    assert not torch.equal(before, bias)
    assert bool((optimizer.diagonal()[1] > 0).all())
    assert optimizer.param_groups[0]["probe_every"] < 20 or torch.equal(
        diagonal, optimizer.diagonal()[0]
    )


# Nothing to do.


@over_entries
def test_step_is_a_noop_when_parameters_need_no_gradient(entry):
    frozen = [torch.ones(2, 3), torch.ones(3)]
    optimizer = entry(frozen)
    for _ in range(4):
        assert step_alone(optimizer, lambda: 1.0) == 1.0
    assert identical(frozen, [torch.ones(2, 3), torch.ones(3)])


@over_entries
def test_step_is_a_noop_without_gradients(entry):
    model = network()
    optimizer = entry(model.parameters())
    step_alone(optimizer)  # even before anything was measured
    train(optimizer, loss_of(model), 3)
    before = copies(model.parameters())
    for _ in range(3):
        step_alone(optimizer)
    assert identical(before, copies(model.parameters()))


@over_all_dtypes
@over_entries
def test_zero_gradients_leave_weight_decay_alone(entry, dtype, request):
    decays = entry.input.desc == "weight_decay"
    known(request, WEIGHT_DECAY_IS_ROUNDED, when=decays and dtype is HALF)
    model = network(dtype)
    optimizer = entry(model.parameters())
    optimizer.calibrate([loss_of(model)()])
    before = copies(model.parameters())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    group = optimizer.param_groups[0]
    shrink = 1 - float(group["lr"]) * group["weight_decay"]
    assert identical([p * shrink for p in before], copies(model.parameters()))


@over_entries
def test_empty_parameters(entry):
    weight, bias = weight_and_bias()
    empty, none = nn.Parameter(torch.empty(0, 3)), nn.Parameter(torch.empty(0))
    optimizer = entry([{"params": [empty, weight]}, {"params": [bias, none]}])
    before, loss = copies([weight, bias]), affine(weight, bias)
    train(optimizer, lambda: loss() + empty.square().sum() + none.sum(), 4)
    assert all(p.isfinite().all() for p in (weight, bias))
    assert not any(map(torch.equal, before, (weight, bias)))


@pytest.mark.parametrize("members", ["none", "frozen"])
@over_kinds
def test_a_group_with_nothing_to_train_is_never_due(kind, members, request):
    known(request, NOTHING_TO_MEASURE)
    model = network()
    idle = [] if members == "none" else [nn.Parameter(torch.ones(2), requires_grad=False)]
    optimizer = kind([{"params": model.parameters()}, {"params": idle}], probe_every=3)
    due = []
    for _ in range(7):
        due.append(optimizer.probe_due)
        train(optimizer, loss_of(model), 1)
    assert due == [True, False, False, True, False, False, True]


@pytest.mark.parametrize("set_to_none", [True, False])
@over_entries
def test_zero_grad(entry, set_to_none):
    models = [network(), network()]
    for model in models:
        optimizer = entry(model.parameters())
        for _ in range(4):
            optimizer.zero_grad(set_to_none=set_to_none and model is models[0])
            loss = loss_of(model)()
            optimizer.probe(loss)
            loss.backward()
            optimizer.step()
    optimizer.zero_grad(set_to_none=set_to_none)
    gradients = [p.grad for p in model.parameters()]
    assert all(g is None if set_to_none else not g.any() for g in gradients)
    assert identical(*[copies(model.parameters()) for model in models])


@over_entries
def test_no_step_where_the_scaler_found_an_infinity(entry):
    model = network()
    optimizer = entry(model.parameters())
    train(optimizer, loss_of(model), 3)
    before, steps = copies(model.parameters()), [float(s["step"]) for s in optimizer.state.values()]
    optimizer.found_inf = torch.ones(())
    train(optimizer, loss_of(model), 1)
    assert identical(before, copies(model.parameters()))
    assert steps == [float(s["step"]) for s in optimizer.state.values()]
    optimizer.found_inf = torch.zeros(())
    train(optimizer, loss_of(model), 1)
    assert not identical(before, copies(model.parameters()))


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


# What is wrong is said.


@pytest.mark.parametrize("given", WRONG_HYPER_PARAMETERS, ids=lambda given: given.desc)
@over_kinds
def test_wrong_hyper_parameters(kind, given):
    one, two = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = kind([one])
    with pytest.raises(given.error_type, match=given.error_regex):
        kind([two], **given.kwargs)
    with pytest.raises(given.error_type, match=given.error_regex):
        kind([{"params": [one]}, {"params": [two], **given.kwargs}])
    with pytest.raises(given.error_type, match=given.error_regex):
        optimizer.add_param_group({"params": [two], **given.kwargs})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("given", WRONG_PARAMETERS, ids=lambda given: given.desc)
@over_kinds
def test_wrong_parameters(kind, given):
    with pytest.raises(given.error_type, match=given.error_regex):
        kind(given.params())


@over_entries
def test_a_step_before_any_probe_raises(entry):
    model = network()
    optimizer = entry(model.parameters())
    loss_of(model)().backward()
    before = copies(model.parameters())
    with pytest.raises(RuntimeError, match=r"optimizer\.probe\(loss\) before loss\.backward"):
        optimizer.step()
    assert identical(before, copies(model.parameters()))


@over_defaults
def test_sparse_gradients_are_refused_before_anything_moves(entry):
    table = nn.Embedding(4, 3, sparse=True)
    head = nn.Parameter(torch.ones(3))
    optimizer = entry([head, table.weight])
    optimizer.calibrate([(table.weight * head).square().sum()])
    (table(torch.tensor([1, 1])) * head).square().sum().backward()
    with pytest.raises(RuntimeError, match="sparse=False"):
        optimizer.step()
    assert torch.equal(head, torch.ones(3))


@over_entries
def test_it_can_be_printed(entry):
    shown = repr(entry([{"params": [torch.ones(2)]}, {"params": [torch.ones(2)], "lr": 0.75}]))
    assert shown.startswith(f"{entry.info.optim_cls.__name__} (\nParameter Group 0\n")
    assert "lr: 0.75" in shown
    assert all(f"{name}: {value}" in shown for name, value in entry.input.kwargs.items())
