"""Figure 4: probing a training stack, records, drawing without data, verdicts."""

import json
from dataclasses import replace

import pytest
import torch

from equilibrate.curvature import draw_elements, hessian
from equilibrate.paper import figure4, figure4_claims, figure4_joint
from equilibrate.paper.figure4 import Settings, Task
from equilibrate.paper.figure4_measuring import Prober, flat
from equilibrate.paper.records import NotRecorded, Store
from equilibrate.study.methods import METHODS
from equilibrate.study.progress import Progress
from equilibrate.study.stack import Stack
from equilibrate.study.trial import Trial
from tests.study.stacks import CPU, dense

SIZES, CASES = (10, 6, 2, 6, 10), 24


def _stack(seeds=(0, 1), batch_size=8):
    problem = dense(SIZES, CASES, batch_size)
    settings = {"lr": 1e-3, "alpha": 0.9, "eps": 1e-5}
    trials = [Trial("small", "", "rmsprop", settings, seed, batch_size, 9, "float64")
              for seed in seeds]  # fmt: skip
    return Stack(problem, METHODS["rmsprop"], trials, CPU)


def _dense_hessian(stack, row):
    parameters = {name: p[row].detach().requires_grad_() for name, p in stack.parameters.items()}
    outputs = torch.func.functional_call(stack.passes.network, parameters, (stack.data[0],))
    return hessian(stack.problem.loss(outputs, stack.data[1]), list(parameters.values()))


def _vector(stack, seed, probe):
    every = enumerate(stack.parameters.values())
    return torch.cat([draw_elements("rademacher", 0, p[0].numel(), seed=seed, probe=probe,
                                    parameter=i) for i, p in every]).double()  # fmt: skip


def test_sums_are_those_of_the_dense_hessian():
    """With all cases in one batch every probe meets the same Hessian, known exactly."""
    stack = _stack(batch_size=CASES)
    stack.advance(3)
    prober = Prober(stack, folds=4, first_epoch=9)
    prober.probe(6)
    found = prober.sums()
    assert found.counts == (2, 2, 1, 1)
    for row, trial in enumerate(stack.trials):
        matrix = _dense_hessian(stack, row)
        for fold in range(4):
            vectors = [_vector(stack, trial.seed, probe) for probe in range(fold, 6, 4)]
            signed = sum(v * (matrix @ v) for v in vectors)
            squares = sum((matrix @ v).square() for v in vectors)
            torch.testing.assert_close(found.signed[fold, row], signed, rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(found.squares[fold, row], squares, rtol=1e-9, atol=1e-11)


def test_the_spectrum_is_that_of_the_dense_hessian():
    stack = _stack(batch_size=CASES)
    found = Prober(stack, folds=4, first_epoch=9).spectrum(steps=60, batches=2)
    for row in range(2):
        values = torch.linalg.eigvalsh(_dense_hessian(stack, row))
        room = 1e-6 * float(values.abs().max())
        assert float(found.greatest[row]) == pytest.approx(float(values[-1]), abs=room)
        assert float(found.least[row]) == pytest.approx(float(values[0]), abs=room)


def test_every_probe_has_a_batch_of_its_own_and_training_does_not_notice():
    watched, alone = _stack(), _stack()
    prober = Prober(watched, folds=4, first_epoch=9)
    for stack in (watched, alone):
        stack.advance(4)
    prober.probe(4)
    assert len({tuple(g.flatten().tolist()) for g in prober.gradients}) == 4
    prober.spectrum(steps=3, batches=2)
    for stack in (watched, alone):
        stack.advance(4)
    assert torch.equal(flat(list(watched.parameters.values())),
                       flat(list(alone.parameters.values())))  # fmt: skip


SMALL = Settings(
    tasks=(Task("mnist", 4, 1, (1, 4)), Task("curves-like", 4, 2, (2, 4))),
    lr=1e-3, probes=12, counts=(12, 24, 48), folds=4, lanczos_steps=4, lanczos_batches=2,
    seeds=2, precision="float32",
)  # fmt: skip


def _silent(settings):
    return Progress("figure4", figure4.units(settings), stream=None)


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    made = {name: lambda folder, n=name: replace(dense(SIZES, CASES), name=n)
            for name in ("mnist", "curves-like")}  # fmt: skip
    store, progress = Store(tmp_path_factory.mktemp("records")), _silent(SMALL)
    records = figure4.compute(SMALL, store, progress, made)
    assert progress.done == pytest.approx(progress.total)
    return store.folder, records


def test_records_are_complete_finite_and_read_again_without_data(computed):
    folder, records = computed
    progress, nothing = _silent(SMALL), {}  # neither data nor a network
    again = figure4.compute(SMALL, Store(folder, frozen=True), progress, nothing)
    assert again == records
    assert (progress.done, progress.worked) == (pytest.approx(progress.total), 0)
    json.dumps(records, allow_nan=False)
    mnist = records[0]["data"]
    assert [point["epoch"] for point in mnist["points"]] == [1, 2, 3, 4]
    assert [len(point["counts"]) for point in mnist["points"]] == [3, 1, 1, 3]
    assert ["curvature" in point for point in mnist["points"]] == [True, False, False, True]
    assert all(len(c["trials"]) == 2 for point in mnist["points"] for c in point["counts"])


@pytest.mark.parametrize("change", [{"lr": 2e-3}, {"folds": 6}, {"probes": 13}, {"seeds": 3}])
def test_other_settings_are_another_record(computed, change):
    with pytest.raises(NotRecorded):
        figure4.compute(replace(SMALL, **change), Store(computed[0], frozen=True), _silent(SMALL))


def test_the_other_task_is_no_part_of_a_record(computed):
    one = replace(SMALL, tasks=SMALL.tasks[1:])
    (record,) = figure4.compute(one, Store(computed[0], frozen=True), _silent(one))
    assert record == computed[1][1]


def test_it_can_be_drawn_described_and_judged(computed, tmp_path):
    from equilibrate.paper.drawing import save

    _, records = computed
    save(figure4.draw(SMALL, records), tmp_path / "figure4")
    described = figure4.describe(SMALL, records)
    assert len(described.tables) == 6
    judged = {j.claim: j for j in figure4.claims(SMALL, records)}
    assert set(judged) == {"S5", "S18", "S19", "S20", "S22", "S23", "S26"}
    assert all(j.verdict != "not yet run" and j.ours for j in judged.values())


def _invented(task, rows, jacobi, both, free=None, noise=0.8, direction=0.05, least=-1.0):
    """A record whose distances are functions of the epoch, equal for both seeds."""
    points = []
    for epoch in range(10, 101, 10):
        pairs = ("rmsprop_equilibration", "rmsprop_jacobi", "equilibration_jacobi")
        literal = dict(zip(pairs, (f(epoch) for f in (rows, jacobi, both)), strict=True))
        cleaned = {p: [d, d - 0.01, d + 0.01] for p, d in literal.items()} | (free or {})
        updates = {"rmsprop_equilibration": direction, "rmsprop_jacobi": 0.6,
                   "equilibration_jacobi": 0.6, "rmsprop_gradient": 0.5,
                   "equilibration_gradient": 0.5}  # fmt: skip
        trial = {"literal": literal, "noise_free": cleaned, "directions": updates,
                 "noise_share": noise}  # fmt: skip
        counts = [{"probes": k, "trials": [trial, trial]} for k in (100, 400)]
        curvature = [{"least": least, "greatest": 5.0, "negative_share": 0.2}] * 2
        points.append({"epoch": epoch, "errors": [1, 1], "counts": counts, "curvature": curvature})
    data = {"name": task, "seeds": [0, 1], "points": points}
    settings = {"damping": 1e-4, "eps": 1e-5, "lanczos_steps": 5}
    return {"task": task, "data": data, "settings": settings}


def _flat(value):
    return lambda epoch: value


def _verdicts(*records):
    return {j.claim: j.verdict for j in figure4_claims.claims(100, list(records))}


MNIST = ("mnist", _flat(0.05), lambda epoch: 0.05 + 0.003 * epoch, _flat(0.2))
CURVES = ("curves-like", _flat(0.05), _flat(0.2), _flat(0.2))


def test_the_paper_s_conclusions_are_recognised():
    found = _verdicts(_invented(*MNIST, noise=0.1), _invented(*CURVES, noise=0.1))
    assert found.pop("S23") == "holds with a correction"
    assert set(found.values()) == {"holds"}


@pytest.mark.parametrize(
    ("claim", "record", "changes", "verdict"),
    [
        ("S5", CURVES, {"least": -1e-4}, "does not hold"),
        ("S18", CURVES, {"free": {"rmsprop_jacobi": [0.05, 0.0, 0.06]}}, "holds with a correction"),
        ("S18", CURVES, {"free": {"rmsprop_jacobi": [0.2, 0.1, 0.9]}}, "holds with a correction"),
        ("S18", (*CURVES[:1], _flat(0.15), *CURVES[2:]), {}, "does not hold"),
        ("S19", (*MNIST[:2], _flat(0.09), MNIST[3]), {}, "does not hold"),
        ("S19", MNIST, {"free": {"rmsprop_jacobi": [0.1, 0.0, 0.9]}}, "holds with a correction"),
        ("S20", (*MNIST[:3], _flat(0.5)), {}, "does not hold"),
        ("S20", MNIST, {"free": {"rmsprop_jacobi": [0.1, 0.05, 0.15]}}, "holds with a correction"),
        ("S22", CURVES, {"direction": 0.2}, "holds with a correction"),
        ("S22", CURVES, {"direction": 0.4}, "does not hold"),
        ("S26", CURVES, {"noise": 0.8}, "does not hold"),
        ("S19", CURVES, {}, "not yet run"),
        ("S18", MNIST, {}, "not yet run"),
    ],
)  # fmt: skip
def test_and_so_is_what_speaks_against_them(claim, record, changes, verdict):
    assert _verdicts(_invented(*record, **changes))[claim] == verdict


def _run(task, arm, errors):
    curve = {"epoch": list(range(0, 110, 10)), "error": errors,
             "updates": list(range(0, 1100, 100))}  # fmt: skip
    return {"task": task, "method": arm, "seed": 0, "status": "finished", "epochs": 100,
            "final_error": errors[-1], "curve": curve, "settings": {"lr": 0.1}}  # fmt: skip


def _curves(mnist_lead=5, curves_lead=0.9, cleaner=0.5):
    slow = [4.0] * 11
    fast = [4.0] * mnist_lead + [1.0] * (11 - mnist_lead)
    return [
        _run("mnist", "rmsprop", slow), _run("mnist", "esgd", fast),
        _run("mnist", "jacobi", slow), _run("mnist", "jacobi-clean", [4.0 * cleaner] * 11),
        _run("curves-like", "rmsprop", [1.0] * 11),
        _run("curves-like", "esgd", [curves_lead] * 11),
    ]  # fmt: skip


def _joint(figure3, mnist=MNIST):
    far = (mnist[0], _flat(0.3), *mnist[2:])
    records = [_invented(*far), _invented(*CURVES)]
    return {j.claim: j.verdict for j in figure4_joint.joint_claims(100, records, figure3)}


def test_joint_claims_wait_for_figure_3_and_are_judged_with_it():
    assert _joint(None) == {"S12": "not yet run", "S21": "not yet run", "S26": "does not hold"}
    assert _joint(_curves()) == {"S12": "holds with a correction", "S21": "holds",
                                 "S26": "does not hold"}  # fmt: skip
    assert _joint(_curves(cleaner=1.2))["S26"] == "holds with a correction"
    assert _joint(_curves(curves_lead=0.1))["S12"] == "does not hold"
    assert _joint(_curves(mnist_lead=1))["S21"] == "does not hold"
    assert _joint(_curves(), (*MNIST[:2], _flat(0.1), MNIST[3]))["S21"] == "does not hold"


def test_a_lead_that_is_lost_does_not_count():
    errors = [4.0, 1.0, 1.0, 5.0, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    figure3 = [_run("mnist", "rmsprop", [4.0] * 11), _run("mnist", "esgd", errors)]
    arms = figure4_joint.arms_of(figure3, "mnist")
    assert figure4_joint.lead_from(arms["esgd"], arms["rmsprop"]) == 50
    assert figure4_joint.lead_from(arms["rmsprop"], arms["esgd"]) is None


def test_the_full_figure_is_the_paper_s():
    full = figure4.settings(False)
    assert {task.problem for task in full.tasks} == {"mnist", "curves-like"}
    assert all(task.every == 10 and task.epochs >= 1000 for task in full.tasks)
    assert (full.probes, full.seeds, max(full.counts) >= 1600) == (100, 3, True)
