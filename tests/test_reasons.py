"""Why ESGD as shipped and Algorithm 1 differ: the page tells what the records say."""

from pathlib import Path

from benchmarks import reasons
from equilibrate.study.journal import read_records
from equilibrate.study.outcome import final_error

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "reasons" / "mnist-14"
PAGE = (ROOT / "docs" / "results.md").read_text()


def ends(label):
    """The final errors of a change, by seed."""
    method, settings = reasons.CHANGES[label]
    own = [r for r in read_records(RECORDS).values() if r["method"] == method]
    return {r["seed"]: final_error(r) for r in own if r["settings"] == settings}


def test_the_table_is_that_of_the_records():
    behind = PAGE[PAGE.index("<!-- reasons: mnist-14 -->") :]
    assert "\n".join(reasons.table(RECORDS)) in behind
    assert {len(ends(label)) for label in reasons.CHANGES} == {3}


def test_it_is_the_memory_and_not_the_noise():
    """At every seed: longer memories end lower, more probes do not."""
    shipped = ends("ESGD as shipped")
    for memory in ("2,000 steps", "10,000 steps", "50,000 steps"):
        longer = ends(f"memory of {memory}")
        assert all(longer[seed] < shipped[seed] for seed in shipped)
    forgetful = ends("never forgets")
    assert all(forgetful[seed] < 0.95 * shipped[seed] for seed in shipped)
    often = ends("a probe in 5 steps")
    assert all(often[seed] > 0.97 * shipped[seed] for seed in shipped)
