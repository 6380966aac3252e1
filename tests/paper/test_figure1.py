"""Figure 1: the numbers under it, and Newton's way into the saddle."""

import pytest
import torch

from equilibrate.exact import condition_number, equilibration, transformed
from equilibrate.paper import figure1, saddle
from equilibrate.paper.records import Store
from equilibrate.study.progress import Progress


@pytest.fixture(scope="module")
def settings():
    return figure1.FIGURE.settings(True)


@pytest.fixture(scope="module")
def records(settings, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("records"))
    return figure1.compute(settings, store, Progress("figure1", 1, stream=None))


def test_the_saddle_is_indefinite_ill_conditioned_and_not_diagonal(settings):
    hessian = saddle.rotated(settings.curvatures, settings.degrees)
    assert hessian[0, 1].abs() > 1
    assert sorted(torch.linalg.eigvalsh(hessian).tolist()) == pytest.approx([-0.8, 20.0])


def test_equilibration_improves_the_condition_number(settings, records):
    hessian = saddle.rotated(settings.curvatures, settings.degrees)
    after = transformed(hessian, equilibration(hessian))
    data = records[0]["data"]
    assert data["original"]["condition_number"] == pytest.approx(25.0)
    assert data["transformed"]["condition_number"] == pytest.approx(float(condition_number(after)))
    assert data["transformed"]["condition_number"] < 5


def test_both_paths_start_at_the_same_point_and_end_below_the_level(settings, records):
    data = records[0]["data"]
    scale = torch.tensor(data["scale"])
    starts = [torch.tensor(data[name]["path"][0]) for name in ("original", "transformed")]
    torch.testing.assert_close(starts[0] * scale, starts[1])
    for name in ("original", "transformed"):
        matrix = torch.tensor(data[name]["hessian"])
        values = saddle.value(matrix, torch.tensor(data[name]["path"]))
        assert len(values) == data[name]["escape"] + 1
        assert values[-1] < settings.level <= values[-2]


def test_t03_newton_moves_toward_the_saddle(settings, records):
    hessian = saddle.rotated(settings.curvatures, settings.degrees)
    start = torch.tensor([0.3, 0.8], dtype=torch.float64)
    path = saddle.newton(hessian, start, 0.5, 10)
    lengths = path.norm(dim=-1)
    # On a quadratic the step is -rate x exactly; ten steps round by a few units each.
    torch.testing.assert_close(lengths, lengths[0] * 0.5 ** torch.arange(11.0).double())
    judged = {j.claim: j for j in figure1.claims(settings, records)}
    assert judged["T3"].verdict == "holds"


def test_s1_descent_escapes_faster_after_equilibration(settings, records):
    judged = {j.claim: j for j in figure1.claims(settings, records)}
    assert judged["S1"].verdict == "holds"
    assert judged["S1"].numbers["before"] > 5 * judged["S1"].numbers["after"]


def test_s1_does_not_hold_where_the_record_says_otherwise(settings, records):
    data = records[0]["data"]
    swapped = {**data, "original": data["transformed"], "transformed": data["original"]}
    judged = figure1.claims(settings, [{**records[0], "data": swapped}])
    assert {j.claim: j.verdict for j in judged}["S1"] == "does not hold"


def test_steps_to_a_level_that_is_never_reached():
    values = torch.tensor([[3.0, 3.0], [1.0, 2.0]])
    assert saddle.steps_to(values, 1.5).tolist() == [1, -1]
