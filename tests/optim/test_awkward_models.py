"""Models that break optimizers, each under the same laws: training, measuring, closures, saving."""

import io

import pytest
import torch

from equilibrate import ESGD, JacobiSGD, draw, loss_product
from equilibrate.curvature.differences import relative_step
from tests.optim.awkward import DOUBLE, Awkward, Task, run
from tests.optim.awkward_models import AWKWARD
from tests.optim.watching import same

OPTIMIZERS = [ESGD, JacobiSGD]


@pytest.fixture(params=AWKWARD, ids=lambda case: case.name)
def awkward_case(request: pytest.FixtureRequest) -> Awkward:
    found: Awkward = request.param
    return found


@pytest.fixture(params=OPTIMIZERS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[ESGD] | type[JacobiSGD]:
    found: type[ESGD] = request.param
    return found


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
