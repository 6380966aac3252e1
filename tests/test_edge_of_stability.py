"""The edge-of-stability measurement: its limit, what it records, its sentence."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import edge_of_stability as edge
from tests.study.stacks import CPU, dense

ROOT = Path(__file__).parent.parent
ASKED = {"lr": 0.02, "momentum": 0.9, "updates": 9, "moments": 3, "cases": 20, "lanczos_steps": 4,
         "seed": 0}  # fmt: skip


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize(("share", "stable"), [(0.99, True), (1.01, False)])
def test_the_limit_parts_falling_from_growing_on_a_quadratic(momentum, share, stable):
    x = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    lr = share * edge.limit(momentum) / 3.0
    optimizer = torch.optim.SGD([x], lr=lr, momentum=momentum, nesterov=momentum > 0)
    for _ in range(3000):
        optimizer.zero_grad()
        (1.5 * x.square()).sum().backward()
        optimizer.step()
    distance = abs(x.item())
    assert distance < 1e-3 if stable else distance > 10


def test_three_runs_of_one_start_are_measured_at_equal_distances():
    found = edge.measure(dense(), ASKED, CPU)
    assert found.keys() == edge.runs(0.02, 0.9).keys()
    for moments in found.values():
        assert [moment["updates"] for moment in moments] == [3, 6, 9]
        for moment in moments:
            assert moment["scaled"][0] <= moment["scaled"][1]
            assert moment["step"] > 0
            assert moment["diagonal"] > 0
    json.dumps(found)
    first = {name: moments[0] for name, moments in found.items()}
    assert first[edge.SAME]["step"] > first[edge.PLAIN]["step"] > first[edge.LONG_RUN]["step"]


def test_the_largest_eigenvalue_is_that_of_the_dense_matrix_over_d():
    asked = {**ASKED, "updates": 1, "moments": 1, "lanczos_steps": 60}
    problem = dense((6, 3, 6), cases=20)
    found = edge.measure(problem, asked, CPU)[edge.PLAIN][0]
    trial = edge.Trial("small", "", "esgd", {"lr": 0.02}, 0, problem.batch_size, 1)
    alone = edge.Alone(problem, edge.METHOD, [trial], CPU)
    alone.advance(1)
    own = dict(alone.network.named_parameters())
    flat = torch.cat([p.detach().flatten() for p in own.values()])

    def loss(vector):
        pieces = vector.split([p.numel() for p in own.values()])
        shaped = {n: v.view_as(p) for (n, p), v in zip(own.items(), pieces, strict=True)}
        out = torch.func.functional_call(alone.network, shaped, (problem.cases[0][:20],))
        return problem.loss(out, problem.cases[1][:20])

    hessian = torch.func.hessian(loss)(flat).double()
    (group,) = alone.optimizer.param_groups
    divisors = [edge.divisor_of(alone.optimizer, p, group).divisor.flatten() for p in own.values()]
    scaled = torch.cat(divisors).double().rsqrt()
    values = torch.linalg.eigvalsh(scaled[:, None] * hessian * scaled)
    assert found["scaled"] == pytest.approx([float(values[0]), float(values[-1])], rel=1e-3)


def _made_up(scaled, sharpness=10.0, diagonal=1.0):
    moment = {"scaled": [-1.0, scaled], "sharpness": [-1.0, sharpness], "diagonal": diagonal,
              "step": 0.1, "error": 2.0}  # fmt: skip
    return [{**moment, "updates": update} for update in (1, 2)]


def test_the_sentence_places_every_run_against_its_own_limit():
    limit = edge.limit(0.9)
    data = {
        edge.PLAIN: _made_up(1.0 * 2 / 0.02),
        edge.SAME: _made_up(3.0 * limit / 0.02, sharpness=60.0),
        edge.LONG_RUN: _made_up(0.2 * limit / 0.002, diagonal=4.0),
    }
    said = edge.judgement(data, 0.02, 0.9)
    assert "no momentum is at it, 1 of it" in said
    assert "Nesterov, same lr is above it, 3 of it" in said
    assert "Nesterov, lr (1 - m) is below the limit, 0.2 of it" in said
    assert "predicted 0.68, that eigenvalue 2, H's 6, D 1;" in said
    assert "predicted 6.8, that eigenvalue 1.4, H's 1, D 4." in said


def test_the_tables_of_the_records_kept_are_those_on_the_page():
    page = (ROOT / "docs" / "momentum.md").read_text()
    kept = sorted((ROOT / "results" / "edge-of-stability").glob("*.json"))
    assert len(kept) == 2
    for path in kept:
        record = json.loads(path.read_text())
        numbers = record["data"], record["settings"]["lr"], record["settings"]["momentum"]
        assert "\n".join(edge.table(*numbers)) in page
