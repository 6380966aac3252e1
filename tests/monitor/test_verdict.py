"""The product beside the limit is that of the step taken: a run beyond it diverges, below not."""

import math

import pytest
import torch

from equilibrate import ESGD, JacobiSGD
from equilibrate.monitor import Monitor
from equilibrate.monitor.stepping import Rated
from tests.optim.watching import same

PRODUCT, LIMIT = "preconditioned/sharpness_times_lr", "preconditioned/stability_limit"
REASON, OWNER = "preconditioned/no_product", "preconditioned/diagonal"
EVER = {"probe_every": 10**9, "growth_limit": None}  # the diagonal of the first step stays
_ROOT = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
MATRICES = {
    "diag(1, 100)": torch.diag(torch.tensor([1.0, 100.0], dtype=torch.float64)),
    "not diagonal": _ROOT @ _ROOT.mT + 0.1 * torch.eye(4, dtype=torch.float64),
}


def _problem(matrix):
    """Two tensors, so that there can be two groups."""
    size = len(matrix)
    parameters = [torch.ones(n, dtype=torch.float64, requires_grad=True) for n in (1, size - 1)]

    def loss():
        w = torch.cat(parameters)
        return w @ matrix @ w / 2

    return parameters, loss


def _frozen(optimizer, key, scale=1.0):
    """Give it a second moment that stays: a run is decided only while D is."""
    for i, p in enumerate(optimizer.param_groups[0]["params"]):
        number = torch.arange(1.0, len(p) + 1, dtype=p.dtype) + i
        optimizer.state[p] = {"step": torch.tensor(1e15), key: scale * number}
        if key == "exp_avg_sq":
            optimizer.state[p]["exp_avg"] = torch.zeros_like(p)
        if optimizer.param_groups[0].get("momentum"):
            optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return optimizer


def _sgd(**options):
    return lambda p, lr: torch.optim.SGD(p, lr=lr, **options)


def _adam(kind, **options):
    still = {"betas": (0.9, 1 - 1e-12), **options}
    return lambda p, lr: _frozen(kind(p, lr=lr, **still), "exp_avg_sq")


def _rmsprop(**options):
    still = {"alpha": 1 - 1e-12, **options}
    return lambda p, lr: _frozen(torch.optim.RMSprop(p, lr=lr, **still), "square_avg")


def _two_rates(make, **options):
    """The second tensor a hundredth of the rate, and the momentum of its group the same."""
    return lambda p, lr: make(
        [{"params": p[:1], "lr": lr}, {"params": p[1:], "lr": lr / 100}], lr=lr, **options
    )


OPTIMIZERS = {
    "SGD": _sgd(),
    "heavy ball": _sgd(momentum=0.9),
    "dampening": _sgd(momentum=0.9, dampening=0.5),
    "dampening alone": _sgd(dampening=0.5),
    "Nesterov": _sgd(momentum=0.9, nesterov=True),
    "SGD, two rates": _two_rates(torch.optim.SGD),
    "ESGD": lambda p, lr: ESGD(p, lr, **EVER),
    "ESGD, Nesterov": lambda p, lr: ESGD(p, lr, momentum=0.9, nesterov=True, **EVER),
    "ESGD, two rates": _two_rates(ESGD, **EVER),
    "ESGD, rows and columns": lambda p, lr: ESGD(p, lr, scaling="row-column", **EVER),
    "JacobiSGD": lambda p, lr: JacobiSGD(p, lr, probe_every=10**9),
    "Adam": _adam(torch.optim.Adam),
    "AdamW": _adam(torch.optim.AdamW, weight_decay=0.0),
    # A sum of squares so large that those of this run add nothing to it.
    "Adagrad": lambda p, lr: _frozen(torch.optim.Adagrad(p, lr=lr), "sum", 1e14),
    "RMSprop": _rmsprop(),
    "RMSprop, momentum": _rmsprop(momentum=0.5),
}


def _started(make, matrix, lr):
    parameters, loss = _problem(matrix)
    optimizer = make(parameters, lr)
    if hasattr(optimizer, "probe"):
        optimizer.probe(loss())
    named = [(f"p{i}", p) for i, p in enumerate(parameters)]
    monitor = Monitor(named, optimizer, lambda record: None, budget=None, layer_spectra=2)
    return parameters, loss, optimizer, monitor(loss())


@pytest.mark.parametrize("excess", [0.97, 1.03])
@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES.keys())
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_beyond_the_limit_a_run_diverges_and_below_it_does_not(make, matrix, excess):
    """3% beyond, the error grows by 1.06 a step at least: 1e10 in 400 steps."""
    one = _started(make, matrix, 1.0)[-1]
    lr = excess * one[LIMIT] / one[PRODUCT]
    _, loss, optimizer, record = _started(make, matrix, lr)
    assert record[PRODUCT] == pytest.approx(excess * record[LIMIT], rel=1e-9)
    before = now = loss()
    for _ in range(400):
        if now > 1e4 * before:  # far enough: the frozen second moments would move at last
            break
        optimizer.zero_grad()
        now.backward()
        optimizer.step()
        now = loss()
    assert bool(now > 1e4 * before) == (excess > 1)
    assert bool(now < before) == (excess < 1)


def test_a_diverging_sgd_is_beyond_its_limit():
    """diag(1, 100) at a rate of 0.03: with ESGD's diagonal it looks like 0.03 of a limit of 2."""
    record = _started(_sgd(), MATRICES["diag(1, 100)"], 0.03)[-1]
    assert record[PRODUCT] == pytest.approx(3.0)
    assert record["preconditioned/sharpness"] == pytest.approx(1.0, abs=0.03)
    assert record[OWNER] == "monitor's equilibration"
    assert record["layers/p1/" + PRODUCT] == pytest.approx(3.0)
    assert record["layers/p0/" + PRODUCT] == pytest.approx(0.03)


def test_a_rate_of_zero_is_no_step_at_all():
    """The sharp tensor does not move, so that the other one alone is beside the limit."""

    def make(p, lr):
        return torch.optim.SGD([{"params": p[:1]}, {"params": p[1:], "lr": 0.0}], lr=lr)

    assert _started(make, MATRICES["diag(1, 100)"], 0.5)[-1][PRODUCT] == pytest.approx(0.5)
    assert _started(_sgd(), MATRICES["diag(1, 100)"], 0.0)[-1][PRODUCT] == 0


# The optimizer, what is said of it, and whose diagonal stands in `preconditioned/`.
UNDECIDED = {
    "Adam at step 0": (lambda p: torch.optim.Adam(p), "no diagonal yet", "monitor's"),
    "ESGD that has not probed": (lambda p: ESGD(p), "no diagonal yet", "monitor's"),
    "NAdam": (lambda p: torch.optim.NAdam(p), "the step of NAdam", "monitor's"),
    "Rprop": (lambda p: torch.optim.Rprop(p), "the step of Rprop", "monitor's"),
    "L-BFGS": (lambda p: torch.optim.LBFGS(p), "the step of LBFGS", "monitor's"),
    "ascent": (lambda p: torch.optim.SGD(p, maximize=True), "with maximize", "monitor's"),
    "Adagrad, falling": (
        lambda p: torch.optim.Adagrad(p, lr_decay=0.1),
        "with lr_decay",
        "optimizer's squared gradient",
    ),
}
if hasattr(torch.optim, "Muon"):
    UNDECIDED["Muon"] = (lambda p: torch.optim.Muon(p), "the step of Muon", "monitor's")


@pytest.mark.parametrize("name", UNDECIDED)
def test_a_step_without_a_limit_has_no_product(name):
    make, reason, owner = UNDECIDED[name]
    weight = torch.ones(2, 2, requires_grad=True)
    seen = []
    monitor = Monitor([("w", weight)], make([weight]), seen.append, layer_spectra=1)
    monitor((torch.tensor([1.0, 3.0]) * weight**2).sum())
    assert not [key for key in seen[0] if key.endswith(("times_lr", "limit"))]
    assert reason in seen[0][REASON]
    assert seen[0][OWNER].startswith(owner)
    assert seen[0]["sharpness"] == pytest.approx(6.0)


def test_a_tensor_without_curvature_takes_no_verdict_away():
    """Adam has no state of a tensor that never had a gradient; until then it makes none."""
    used, unused = (torch.ones(2, requires_grad=True) for _ in range(2))
    optimizer = torch.optim.Adam([used, unused])
    monitor = Monitor([("u", used), ("o", unused)], optimizer, lambda r: None, every=1, budget=None)
    (used**2).sum().backward()
    optimizer.step()
    record = monitor((used**2).sum())
    assert record[OWNER] == "optimizer's squared gradient"
    assert record[PRODUCT] > 0
    joined = monitor((used**2).sum() + (unused**2).sum())
    assert joined[OWNER] == "monitor's equilibration and optimizer's squared gradient"
    assert PRODUCT not in joined
    assert "no diagonal yet" in joined[REASON]


def test_another_adafactor_is_watched_though_its_second_moment_is_no_adam_s():
    class Adafactor(torch.optim.Optimizer):
        pass

    weight = torch.ones(2, requires_grad=True)
    optimizer = Adafactor([weight], {"lr": 0.1, "eps": (1e-30, 1e-3)})
    optimizer.state[weight]["exp_avg_sq"] = torch.ones(2)
    record = Monitor([("w", weight)], optimizer, lambda r: None)((weight**2).sum())
    assert record[OWNER] == "monitor's equilibration"
    assert math.isfinite(record["sharpness"])


def test_an_optimizer_that_accelerate_wraps_is_the_one_inside():
    class AcceleratedOptimizer(torch.optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer, self.param_groups = optimizer, optimizer.param_groups
            self.state = {}

    class Lookahead(AcceleratedOptimizer):
        pass

    def record(wrap):
        weight = torch.ones(2, requires_grad=True)
        optimizer = wrap(torch.optim.SGD([weight], lr=0.1))
        return Monitor([("w", weight)], optimizer, lambda r: None)((weight**2).sum())

    assert record(AcceleratedOptimizer)[PRODUCT] == pytest.approx(0.2)
    assert "the step of Lookahead" in record(Lookahead)[REASON]


def test_rated_diagonals_are_read_one_at_a_time():
    diagonals = [torch.tensor([2.0, 3.0]), torch.tensor([5.0])]
    assert same(list(Rated(diagonals, [2.0, 0.5], False)), [diagonals[0] * 2, diagonals[1] / 2])
    assert same(
        list(Rated(diagonals, [2.0, 0.5], True)), [torch.full((2,), 2.0), torch.full((1,), 0.5)]
    )
