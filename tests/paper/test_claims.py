"""The claims table: a row for each id, never bent, never left out; strict JSON for machines."""

import json
from pathlib import Path

import pytest

from equilibrate.paper import claims
from equilibrate.paper.figure import Judgement
from equilibrate.paper.statements import STATEMENTS

IDS = [f"T{i}" for i in range(1, 25)] + [f"S{i}" for i in range(1, 27)]
TESTS = Path(__file__).parents[1]


def test_there_is_a_row_for_every_claim():
    assert [row.claim for row in claims.table([])] == IDS


def test_studies_without_records_are_not_yet_run():
    rows = [row for row in claims.table([]) if row.claim.startswith("S")]
    assert {row.verdict for row in rows} == {"not yet run"}
    assert {row.ours + row.evidence for row in rows} == {""}


def test_a_judgement_fills_its_row_alone():
    judged = Judgement("S3", "does not hold", "worse", "records", {"x": float("nan")})
    rows = {row.claim: row for row in claims.table([judged])}
    assert (rows["S3"].verdict, rows["S3"].ours) == ("does not hold", "worse")
    assert rows["S2"].verdict == "not yet run"


def test_the_file_for_machines_is_strict_json(tmp_path):
    judged = Judgement("S3", "holds", "better", "records", {"x": [float("inf"), 1.0]})
    path = tmp_path / "claims.json"
    claims.write(claims.table([judged]), path, quick=True)

    def refuse(name):
        raise AssertionError(name)

    content = json.loads(path.read_text(), parse_constant=refuse)
    assert content["quick"] is True
    assert len(content["claims"]) == len(IDS)
    assert {"claim", "paper", "ours", "evidence", "verdict"} <= content["claims"][0].keys()


@pytest.mark.parametrize("claim", [s.claim for s in STATEMENTS if s.theory])
def test_every_theory_row_names_tests_that_exist(claim):
    prefix = f"def {claims.test_prefix(claim)}"
    assert any(prefix in path.read_text() for path in TESTS.rglob("test_*.py"))
