"""What the monitor says of a run is the dense answer."""

import math
from collections import Counter
from copy import deepcopy
from functools import partial
from itertools import combinations

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD, cosine_distance, hessian
from equilibrate.exact import equilibration, transformed
from equilibrate.monitor import Monitor
from equilibrate.monitor.denominators import divisor_of
from tests.cases import NETWORK
from tests.monitor.watched import EVERY_OPTIMIZER, OPTIMIZERS, measured
from tests.optim.loops import train

NAMES = ("equilibration", "jacobi", "gradient")


def _divisor(optimizer, parameters):
    group = optimizer.param_groups[0]
    found = [divisor_of(optimizer, p, group) for p in parameters]
    return None if found[0] is None else torch.cat([f.divisor.flatten() for f in found])


@EVERY_OPTIMIZER
def test_sharpness_and_condition_before_and_after(make):
    record, optimizer, parameters, matrix = measured(make)
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
    record, _, parameters, matrix = measured(OPTIMIZERS["sgd"])
    rows = equilibration(matrix).split([p.numel() for p in parameters])
    divisor = torch.cat([r + 1e-2 * r.mean() for r in rows])
    after = float(torch.linalg.eigvalsh(transformed(matrix, divisor))[-1])
    # 200 probes know each row norm to 0.71 / sqrt(200) = 5%.
    assert record["preconditioned/sharpness"] == pytest.approx(after, rel=0.15)
    # What it steps by is not divided: its product is that of H.
    product = record["preconditioned/sharpness_times_lr"]
    assert product == pytest.approx(0.05 * record["sharpness"], rel=1e-12)
    assert "layers/p0/learning_rate/median" not in record


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("probes", [4, 40, 400])
def test_distances_and_errors_against_the_dense_answer(probes, seed):
    options = {"probes": probes, "seed": 1000 * seed}
    record, optimizer, parameters, matrix = measured(OPTIMIZERS["adam"], **options)
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
        low, high = (record[f"distance/{pair}_{side}"] for side in ("low", "high"))
        assert low <= float(distance) <= high, pair
        assert probes < 400 or high - low < 0.15, pair
    # One probe leaves sqrt(2) / 2 where no entry of a row stands out, and less otherwise.
    if probes > 4:
        assert 0.2 < record["layers/p0/relative_error"] * math.sqrt(probes) < 0.75


# Scales of two inputs that give a few elements, on the diagonal, most of the curvature; probes.
SCALED = {
    "one scale": ((1.0, 1.0), 40),
    "one far": ((1e3, 1.0), 4),
    "one far, more probes": ((1e3, 1.0), 40),
    "two far": ((1e3, 1e2), 40),
}


def _scaled(scales):
    """A network on inputs of several scales, its loss, and its three diagonals."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    x, y = torch.randn(64, 4).double(), torch.randn(64, 2).double()
    x[:, :2] *= torch.tensor(scales)

    def loss():
        return nn.functional.mse_loss(model(x), y)

    parameters = list(model.parameters())
    matrix = hessian(loss(), parameters)
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss(), parameters)])
    return model, loss, equilibration(matrix), matrix.diagonal().abs(), gradient.abs()


@pytest.mark.parametrize(("scales", "probes"), SCALED.values(), ids=SCALED)
def test_distances_hold_the_dense_answer_in_nineteen_of_twenty_draws(scales, probes):
    """More than four of twenty miss with a probability of 0.3%."""
    model, loss, *diagonals = _scaled(scales)
    sgd, missed = torch.optim.SGD(model.parameters()), Counter()
    for seed in range(20):
        options = {"budget": None, "probes": probes, "steps": 2, "seed": 1000 * seed}
        record = Monitor(model, sgd, lambda record: None, **options)(loss())
        for (one, a), (other, b) in combinations(zip(NAMES, diagonals, strict=True), 2):
            sides = [record[f"distance/{one}_{other}_{side}"] for side in ("low", "high")]
            missed[one, other] += not sides[0] - 1e-9 <= float(cosine_distance(a, b)) <= sides[1]
    assert max(missed.values()) <= 4, missed


def test_two_probes_leave_every_distance_open():
    record = measured(OPTIMIZERS["adam"], probes=2)[0]
    sides = [record[f"distance/jacobi_gradient_{side}"] for side in ("low", "high")]
    assert sides == [0.0, 1.0]


def by_element(diagonals):
    """The relative scatter of an element, over seeds, all elements alike."""
    return float((diagonals.var(0) / diagonals.mean(0).square()).mean().sqrt())


def in_the_norm(diagonals):
    """The scatter of the whole tensor over its size: some of its elements are near zero."""
    variance = diagonals.var(0)
    size = (diagonals.mean(0).square() - variance / len(diagonals)).sum()
    return float((variance.sum() / size).sqrt())


def signed(optimizer):
    return next(iter(optimizer.state.values()))["diagonal"].clone()


@pytest.mark.parametrize(
    ("make", "scatter"),
    [
        (partial(ESGD, warmup_probes=16), by_element),
        (partial(ESGD, scaling="row-column", probe_every=1), by_element),
        (partial(JacobiSGD, warmup_probes=16), in_the_norm),
    ],
    ids=["equilibration", "row-column", "jacobi"],
)
def test_the_error_of_the_optimizer_s_own_diagonal(make, scatter):
    """A running mean of k probes scatters between seeds as the monitor says it does."""
    found, said = [], []
    for seed in range(40):
        parameters, loss = NETWORK.parameters_and_loss()
        optimizer = make(parameters, lr=0.0, seed=seed, decay=None)
        train(optimizer, loss, 1 if optimizer.param_groups[0]["probe_every"] > 1 else 80)
        found.append(signed(optimizer))
        if seed < 5:
            named = [(f"p{i}", p) for i, p in enumerate(parameters)]
            monitor = Monitor(named, optimizer, lambda r: None, probes=200, seed=seed)
            said.append(monitor(loss())["layers/p0/relative_error"])
    assert sum(said) / 5 == pytest.approx(scatter(torch.stack(found)), rel=0.2)


def test_a_copy_of_a_record_is_plain_data():
    record = measured(OPTIMIZERS["esgd"])[0]
    words = {k for k, v in deepcopy(record).items() if not isinstance(v, (int, float))}
    assert words == {"preconditioned/diagonal"}
    assert not any(math.isnan(v) for k, v in record.items() if "sharpness" in k)
