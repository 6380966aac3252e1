"""The claims table: one row for every checkable sentence of the paper, judged or not yet run."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from equilibrate.paper.figure import Judgement, Verdict
from equilibrate.paper.statements import STATEMENTS, Statement
from equilibrate.study.strict_json import strict


@dataclass(frozen=True)
class Row:
    """One claim: what the paper says, the right statement, ours, evidence and verdict."""

    claim: str
    paper: str
    correction: str
    ours: str
    evidence: str
    verdict: Verdict
    numbers: dict[str, Any] = field(default_factory=dict)


def table(judgements: Iterable[Judgement]) -> list[Row]:
    """Return a row for every id, in the order of CLAIMS.md; figures judge, tests hold the rest."""
    judged = {judgement.claim: judgement for judgement in judgements}
    return [_row(statement, judged.get(statement.claim)) for statement in STATEMENTS]


def test_prefix(claim: str) -> str:
    """Return how the names of the tests that hold a theory row start.

    Example:
        >>> test_prefix("T4")
        'test_t04_'
    """
    return f"test_t{int(claim[1:]):02d}_"


def _row(statement: Statement, found: Judgement | None) -> Row:
    head = (statement.claim, statement.says, statement.correction)
    if found is not None:
        return Row(*head, found.ours, found.evidence, found.verdict, found.numbers)
    if not statement.theory:
        return Row(*head, "", "", "not yet run")
    verdict: Verdict = "holds with a correction" if statement.correction else "holds"
    return Row(*head, statement.ours, f"tests {test_prefix(statement.claim)}*", verdict)


def write(rows: Iterable[Row], path: Path, *, quick: bool) -> None:
    """Write the table for machines."""
    content = {"quick": quick, "claims": [strict(asdict(row)) for row in rows]}
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
