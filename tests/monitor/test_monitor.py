"""The monitor beside a training run: nothing changes, and what it says is the dense answer."""

import json
import math
from copy import deepcopy

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD, cosine_distance, hessian
from equilibrate.exact import equilibration, transformed
from equilibrate.monitor import JSONLines, Monitor, TensorBoard, numbers
from equilibrate.monitor.denominators import divisor_of, stability_limit
from equilibrate.monitor.schedule import Schedule
from tests.cases import NETWORK
from tests.optim.watching import same

OPTIMIZERS = {
    "esgd": lambda p: ESGD(p, lr=0.05, probe_every=3, momentum=0.9),
    "jacobi": lambda p: JacobiSGD(p, lr=0.01, probe_every=2),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
}


@pytest.fixture(params=OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def make(request):
    return request.param


def _model():
    """Dropout and running statistics: whatever a measurement disturbed would show."""
    torch.manual_seed(0)
    layers = [nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3)]
    return nn.Sequential(*layers)


def _train(make, watch, steps=6):
    model = _model()
    optimizer = make(model.parameters())
    monitor = watch(model, optimizer)
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 6)
        loss = (model(x) - x[:, :3]).square().mean()
        if hasattr(optimizer, "probe"):
            optimizer.probe(loss)
        monitor(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return {
        "model": dict(model.state_dict()),
        "optimizer": optimizer.state_dict(),
        "losses": losses,
        "random": torch.get_rng_state(),
    }


def test_a_run_with_the_monitor_at_every_step_is_the_same_to_the_bit(make):
    seen = []

    def watched(model, optimizer):
        return Monitor(model, optimizer, seen.append, every=1, budget=None, layer_spectra=2)

    alone = _train(make, lambda model, optimizer: lambda loss: None)
    beside = _train(make, watched)
    assert [record["step"] for record in seen] == list(range(6))
    assert all("sharpness" in record for record in seen)
    assert same(alone, beside)


def test_the_monitor_leaves_gradients_and_hooks_alone():
    model = _model()
    fired = []
    for p in model.parameters():
        p.register_hook(lambda g: fired.append(1))
    loss = model(torch.randn(8, 6)).square().mean()
    monitor = Monitor(model, torch.optim.SGD(model.parameters()), lambda r: None, budget=None)
    monitor(loss)
    assert fired == []
    assert all(p.grad is None for p in model.parameters())


def _measured(make, **options):
    """A double-precision network after three steps, one measurement, and the dense Hessian."""
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = make(parameters)
    for _ in range(3):
        value = loss()
        if hasattr(optimizer, "probe"):
            optimizer.probe(value)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
    named = [(f"p{i}", p) for i, p in enumerate(parameters)]
    options = {"probes": 200, "steps": 83, **options}
    record = Monitor(named, optimizer, lambda r: None, budget=None, **options)(loss())
    return record, optimizer, parameters, hessian(loss(), parameters)


def _divisor(optimizer, parameters):
    group = optimizer.param_groups[0]
    found = [divisor_of(optimizer, p, group) for p in parameters]
    return None if found[0] is None else torch.cat([f.divisor.flatten() for f in found])


def test_sharpness_and_condition_before_and_after(make):
    record, optimizer, parameters, matrix = _measured(make)
    values = torch.linalg.eigvalsh((matrix + matrix.mT) / 2)
    assert record["sharpness"] == pytest.approx(float(values[-1]), rel=1e-9)
    assert record["smallest"] == pytest.approx(float(values[0]), rel=1e-9)
    sizes = values.abs().sort().values
    assert record["condition_median"] == pytest.approx(float(sizes[-1] / sizes[41]), rel=1e-6)
    divisor = _divisor(optimizer, parameters)
    if divisor is not None:
        after = torch.linalg.eigvalsh(transformed(matrix, divisor))
        assert record["preconditioned/sharpness"] == pytest.approx(float(after[-1]), rel=1e-6)
        lr = optimizer.param_groups[0]["lr"]
        times = record["preconditioned/sharpness_times_lr"]
        assert times == pytest.approx(lr * float(after[-1]), rel=1e-6)


def test_without_a_diagonal_of_its_own_the_optimizer_is_shown_equilibration():
    record, _, parameters, matrix = _measured(OPTIMIZERS["sgd"])
    rows = equilibration(matrix).split([p.numel() for p in parameters])
    divisor = torch.cat([r + 1e-2 * r.mean() for r in rows])
    after = float(torch.linalg.eigvalsh(transformed(matrix, divisor))[-1])
    # 200 probes know each row norm to 0.71 / sqrt(200) = 5%.
    assert record["preconditioned/sharpness"] == pytest.approx(after, rel=0.15)
    assert "layers/p0/learning_rate/median" not in record


def test_quantiles_of_diagonal_and_learning_rate_are_the_optimizer_s(make):
    record, optimizer, parameters, _ = _measured(make)
    group = optimizer.param_groups[0]
    for i, p in enumerate(parameters):
        found = divisor_of(optimizer, p, group)
        if found is None:
            continue
        rate = group["lr"] / found.divisor
        assert record[f"layers/p{i}/diagonal/q95"] == float(found.diagonal.quantile(0.95))
        assert record[f"layers/p{i}/learning_rate/median"] == float(rate.quantile(0.5))


@pytest.mark.parametrize("name", ["esgd", "jacobi", "adam", "rmsprop", "adagrad"])
def test_the_divisor_is_what_the_step_divides_by(name):
    """A step without momentum or averaging moves by lr g / divisor."""
    plain = {
        "esgd": lambda p: ESGD(p, lr=0.05, probe_every=1000),
        "jacobi": lambda p: JacobiSGD(p, lr=0.01, probe_every=1000),
        "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.0, 0.9)),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    }[name]
    _, optimizer, parameters, _ = _measured(plain)
    loss = NETWORK.build()[1]
    value = loss(_stack(parameters))
    if hasattr(optimizer, "probe"):
        optimizer.probe(value)
    value.backward()
    before = [p.detach().clone() for p in parameters]
    gradients = [p.grad.clone() for p in parameters]
    optimizer.step()
    group = optimizer.param_groups[0]
    for p, old, g in zip(parameters, before, gradients, strict=True):
        divisor = divisor_of(optimizer, p, group).divisor
        torch.testing.assert_close(old - p.detach(), group["lr"] * g / divisor)


def _stack(parameters):
    """The network of the case with these very parameters."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    for layer, pair in ((model[0], parameters[:2]), (model[2], parameters[2:])):
        layer.weight, layer.bias = pair
    return model


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("probes", [4, 40, 400])
def test_distances_and_errors_against_the_dense_answer(probes, seed):
    options = {"probes": probes, "seed": 1000 * seed}
    record, optimizer, parameters, matrix = _measured(OPTIMIZERS["adam"], **options)
    rows = equilibration(matrix)
    gradient = torch.cat([
        divisor_of(optimizer, p, optimizer.param_groups[0]).diagonal.flatten() for p in parameters
    ])  # fmt: skip
    exact = {
        "equilibration_jacobi": cosine_distance(rows, matrix.diagonal().abs()),
        "equilibration_gradient": cosine_distance(rows, gradient),
        "jacobi_gradient": cosine_distance(matrix.diagonal().abs(), gradient),
    }
    for pair, distance in exact.items():
        low, high = (record[f"distance/{pair}/{side}"] for side in ("low", "high"))
        assert low <= float(distance) <= high, pair
        assert probes < 400 or high - low < 0.15, pair
    # One probe leaves sqrt(2) / 2 where no entry of a row stands out, and less otherwise.
    if probes > 4:
        assert 0.2 < record["layers/p0/relative_error"] * math.sqrt(probes) < 0.75


def test_two_probes_leave_every_distance_open():
    record = _measured(OPTIMIZERS["adam"], probes=2)[0]
    sides = [record[f"distance/jacobi_gradient/{side}"] for side in ("low", "high")]
    assert sides == [0.0, 1.0]


def test_the_error_of_the_optimizer_s_own_diagonal():
    """ESGD's running mean of k probes scatters between seeds as the monitor says it does."""
    found, said = [], []
    for seed in range(40):
        parameters, loss = NETWORK.parameters_and_loss()
        optimizer = ESGD(parameters, lr=0.0, warmup_probes=16, seed=seed, decay=None)
        optimizer.probe(loss())
        found.append(optimizer.diagonal()[0])
        if seed < 5:
            named = [(f"p{i}", p) for i, p in enumerate(parameters)]
            monitor = Monitor(named, optimizer, lambda r: None, probes=50, seed=seed)
            said.append(monitor(loss())["layers/p0/relative_error"])
    diagonals = torch.stack(found)
    scatter = float((diagonals.var(0) / diagonals.mean(0).square()).mean().sqrt())
    assert sum(said) / 5 == pytest.approx(scatter, rel=0.2)


def test_dead_units_and_damping_are_counted():
    weight = torch.tensor([[1.0, 1.0], [0.0, 0.0]], requires_grad=True)
    optimizer = ESGD([weight], damping=2.0)
    loss = (torch.tensor([1.0, 3.0]) * weight[0] ** 2).sum()
    optimizer.probe(loss)
    record = Monitor([("w", weight)], optimizer, lambda r: None)(loss)
    assert record["layers/w/share_unseen"] == 0.5
    assert record["layers/w/share_damped"] == 0.5  # 2 and 6, mean 4: both below 2 * 4


def test_a_unit_that_dies_later_is_flat_now_though_it_was_seen():
    weight = torch.tensor([1.0, 1.0], requires_grad=True)
    optimizer = ESGD([weight])
    optimizer.probe(weight.square().sum())
    record = Monitor([("w", weight)], optimizer, lambda r: None)(weight[0] ** 2)
    assert record["layers/w/share_unseen"] == 0
    assert record["layers/w/share_flat"] == 0.5


def test_negative_curvature_is_seen():
    weight = torch.ones(200, requires_grad=True)
    signs = torch.where(torch.arange(200) < 50, -1.0, 1.0)
    loss = (signs * weight**2).sum()
    record = Monitor([("w", weight)], torch.optim.SGD([weight]), lambda r: None)(loss)
    assert record["negative_share/low"] <= 0.25 <= record["negative_share/high"]
    assert record["negative_share"] == pytest.approx(0.25, abs=0.1)  # one start: deviation 0.043
    assert record["layers/w/share_negative_diagonal"] == pytest.approx(0.25)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g


TROUBLED = {
    "not finite": lambda m, x: (m(x) / 0.0).sum() * float("nan"),
    "once_differentiable": lambda m, x: Once.apply(m(x)).square().mean(),
    "does not depend": lambda m, x: torch.ones((), requires_grad=True) * 2,
}


@pytest.mark.parametrize(("reason", "loss"), TROUBLED.items(), ids=TROUBLED.keys())
def test_a_loss_without_curvature_is_said_once_and_training_goes_on(reason, loss):
    model = nn.Linear(3, 2)
    seen = []
    monitor = Monitor(model, torch.optim.SGD(model.parameters()), seen.append, every=1, budget=None)
    with pytest.warns(UserWarning, match="cannot measure") as warned:
        list(map(monitor, [loss(model, torch.randn(4, 3)) for _ in range(3)]))
    assert len(warned) == 1
    assert reason in str(warned[0].message)
    assert [("unmeasured" in r, "sharpness" in r) for r in seen] == [(True, False)] * 3


@pytest.mark.parametrize("cost", [0.1, 5.0, 40.0])
def test_the_budget_bounds_what_is_spent(cost):
    now = [0.0]
    schedule = Schedule(every=3, budget=0.02, clock=lambda: now[0])
    spent, measured = 0.0, 0
    for _ in range(20_000):
        if schedule.due():
            schedule.spend(cost)
            now[0] += cost
            spent, measured = spent + cost, measured + 1
        now[0] += 0.5
        assert spent <= 0.02 * now[0] + cost
    expected = min(20_000 / 3, 0.02 * 10_000 / 0.98 / cost)
    assert measured == pytest.approx(expected, rel=0.1, abs=1.01)


def test_sinks(tmp_path):
    model = _model()
    optimizer = torch.optim.Adam(model.parameters())
    loss = model(torch.randn(8, 6)).square().mean()
    noted = []

    class Writer:
        def add_scalar(self, tag, value, step):
            noted.append((tag, value, step))

        def flush(self):
            pass

    lines, board = JSONLines(tmp_path / "deep" / "run.jsonl"), TensorBoard(Writer())
    seen = []
    sinks = [lines, board, seen.append]
    monitor = Monitor(model, optimizer, lambda record: [sink(record) for sink in sinks])
    monitor(loss)
    read = json.loads((tmp_path / "deep" / "run.jsonl").read_text())
    finite = numbers(seen[0])
    assert {k: v for k, v in read.items() if isinstance(v, (int, float))} == finite
    assert {tag: value for tag, value, _ in noted} == {k: finite[k] for k in finite if k != "step"}
    assert {step for _, _, step in noted} == {0}
    assert len(finite) > 50


def test_tensorboard_reads_what_was_written(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    sink = TensorBoard(tmp_path)
    for step in (0, 3):
        sink({"step": step, "loss": 0.5 + step, "layers/0.weight/share_flat": 0.25, "note": "x"})
    events = reader.EventAccumulator(str(tmp_path))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["layers/0.weight/share_flat", "loss"]
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(0, 0.5), (3, 3.5)]


def test_without_tensorboard_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        TensorBoard(tmp_path)


@pytest.mark.parametrize("options", [{"every": 0}, {"budget": 0.0}, {"probes": 1}, {"steps": 1}])
def test_arguments_are_checked(options):
    model = nn.Linear(2, 1)
    with pytest.raises(ValueError, match=next(iter(options))):
        Monitor(model, torch.optim.SGD(model.parameters()), print, **options)


LIMITS = {
    "plain": ({}, 2.0),
    "heavy ball": ({"momentum": 0.9}, 3.8),
    "nesterov": ({"momentum": 0.9, "nesterov": True}, 3.8 / 2.8),
}


@pytest.mark.parametrize(("options", "limit"), LIMITS.values(), ids=LIMITS.keys())
def test_the_stability_limit_is_where_descent_on_a_quadratic_turns(options, limit):
    assert stability_limit(options) == pytest.approx(limit)
    for factor, converges in ((0.98, True), (1.02, False)):
        weight = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=factor * limit, **options)
        for _ in range(2000):
            optimizer.zero_grad()
            (weight.square() / 2).sum().backward()
            optimizer.step()
        assert (abs(weight.item()) < 1) == converges, factor


def test_a_copy_of_a_record_is_plain_data():
    record = _measured(OPTIMIZERS["esgd"])[0]
    assert all(isinstance(v, (int, float)) for v in deepcopy(record).values())
    assert not any(math.isnan(v) for k, v in record.items() if "sharpness" in k)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_awkward_parameters_are_watched(make):
    """A scalar, an empty tensor, one without a gradient; two steps, and no NaN where it counts."""
    scalar = torch.tensor(0.5, requires_grad=True)
    empty = torch.zeros(0, 3, requires_grad=True)
    unused, used = torch.ones(3, requires_grad=True), torch.rand(4, requires_grad=True)
    parameters = [scalar, empty, unused, used]
    optimizer = make(parameters)
    seen = []
    named = [("scalar", scalar), ("empty", empty), ("unused", unused), ("used", used)]
    monitor = Monitor(named, optimizer, seen.append, every=1, budget=None)
    for _ in range(2):
        loss = (scalar * used).sin().sum() + empty.sum()
        if hasattr(optimizer, "probe"):
            optimizer.probe(loss)
        monitor(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert [record["layers/unused/share_flat"] for record in seen] == [1.0, 1.0]
    assert all(math.isfinite(record["sharpness"]) for record in seen)
    assert all(math.isfinite(record["preconditioned/sharpness"]) for record in seen)
