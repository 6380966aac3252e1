"""Figure 2: exact Hessians, singular directions, and verdicts as functions of the records."""

import pytest
import torch

from equilibrate.curvature import hessian
from equilibrate.exact import condition_number, gauss_newton
from equilibrate.paper import figure2, figure2_claims
from equilibrate.paper.random_problems import Size, features, hessians, loss, random_problem
from equilibrate.paper.records import Store
from equilibrate.study.progress import Progress

SMALL = [Size(6, 4, 3, 30), Size(5, 3, 4, 25, every_class=True), Size(0, 4, 3, 30),
         Size(0, 4, 2, 30, every_class=True)]  # fmt: skip


def _parameters(problem):
    weights = [problem.outgoing, problem.incoming]
    return [w.clone().requires_grad_() for w in weights if w is not None]


@pytest.mark.parametrize("size", SMALL, ids=str)
def test_the_closed_form_is_the_hessian(size):
    problem = random_problem(size, seed=1)
    weights = _parameters(problem)
    incoming = weights[1] if size.hidden else None
    slow = hessian(loss(problem, weights[0], incoming, size.classes), weights)
    fast = hessians(problem, size.classes)[0]
    assert len(fast) == size.parameters
    # Sums of at most 30 terms below one: a few dozen units of rounding.
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("size", SMALL, ids=str)
def test_the_closed_form_holds_the_gauss_newton_matrix(size):
    problem = random_problem(size, seed=1)

    def outputs(weights):
        seen = features(problem, weights[1] if size.hidden else None)
        logits = seen @ weights[0].T
        missing = logits.new_zeros(len(logits), size.classes - logits.shape[1])
        return torch.cat([logits, missing], 1)

    def cost(logits):
        return torch.nn.functional.cross_entropy(logits, problem.targets)

    slow = gauss_newton(outputs, cost, [w.detach() for w in _parameters(problem)])
    torch.testing.assert_close(hessians(problem, size.classes)[1], slow, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("size", SMALL, ids=str)
def test_the_null_space_has_exactly_the_dimension_said(size):
    values = torch.linalg.eigvalsh(hessians(random_problem(size, 1), size.classes)[0]).abs()
    tiny = (values < 1e-14 * len(values) * values.max()).sum()
    assert int(tiny) == size.null_directions


def test_extreme_ratio_is_the_condition_number():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    matrix = matrix + matrix.T
    expected = float(condition_number(matrix))
    assert figure2.extreme_ratio(torch.linalg.eigvalsh(matrix)) == pytest.approx(expected)
    with_null = torch.block_diag(matrix, torch.zeros(2, 2, dtype=torch.float64))
    assert figure2.extreme_ratio(torch.linalg.eigvalsh(with_null), 2) == pytest.approx(expected)


def test_the_absolute_hessian_gives_condition_number_one():
    found = figure2.measure(Size(6, 3, 3, 60), seed=0)
    # Rounding in |H|^-1/2 H |H|^-1/2 is that of the condition number before.
    room = 100 * found["before"] * torch.finfo(torch.float64).eps
    assert found["after"]["absolute"] == pytest.approx(1.0, abs=max(room, 1e-12))


def test_in_the_convex_case_gauss_newton_is_jacobi():
    for every_class in (False, True):
        found = figure2.measure(Size(0, 5, 3, 60, every_class), seed=0)
        assert found["after"]["gauss_newton"] == found["after"]["jacobi"]
        assert found["negative"] == 0


def test_the_main_size_is_that_of_the_issue():
    convex, network = figure2.SIZES["main"]
    full = figure2.FIGURE.settings(False)
    assert convex.hidden == 0
    assert network.hidden == 100
    assert network.parameters >= 1000
    assert full.problems == 100
    assert len(full.sizes) >= 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    settings = figure2.Settings(("main", "small"), problems=6, other_problems=4, hidden=8)
    store = Store(tmp_path_factory.mktemp("records"))
    units = figure2.FIGURE.units(settings)
    return settings, figure2.compute(settings, store, Progress("figure2", units, stream=None))


def test_every_problem_is_measured_once(tiny):
    _, records = tiny
    for size, count in (("main", 6), ("small", 4)):
        for case in ("convex", "non-convex"):
            seeds = [p["seed"] for p in figure2_claims.problems(records, size, case)]
            assert seeds == list(range(count))


def test_tables_have_a_row_for_every_size(tiny):
    settings, records = tiny
    described = figure2.FIGURE.describe(settings, records)
    assert [len(table.rows) for table in described.tables] == [2, 2]
    assert any("null space" in note for note in described.notes)


def _invented(after, size="main", case="non-convex", count=40):
    problems = [{"seed": i, "before": 100.0, "after": after, "negative": 0.5, "resolved": True}
                for i in range(count)]  # fmt: skip
    return {"size": size, "case": case, "data": {"problems": problems}}


def _verdicts(*records):
    convex = {"jacobi": 50.0, "equilibration": 51.0, "gauss_newton": 50.0, "absolute": 1.0}
    both = [_invented(convex, r["size"], "convex") for r in records]
    return {j.claim: j.verdict for j in figure2_claims.claims([*both, *records])}


GOOD = {"jacobi": 50.0, "equilibration": 10.0, "gauss_newton": 80.0, "absolute": 1.0}


def test_the_paper_s_conclusions_are_recognised_and_so_is_their_opposite():
    assert _verdicts(_invented(GOOD)) == {"S2": "holds", "S3": "holds", "S4": "holds"}
    worse = _verdicts(_invented({**GOOD, "equilibration": 90.0}))
    assert worse["S3"] == worse["S4"] == "does not hold"


def test_a_size_that_disagrees_asks_for_a_correction():
    other = _invented({**GOOD, "jacobi": 5.0, "gauss_newton": 20.0}, size="small")
    assert _verdicts(_invented(GOOD), other)["S3"] == "holds with a correction"
    between = _invented({**GOOD, "gauss_newton": 30.0})
    assert _verdicts(between)["S4"] == "holds with a correction"
