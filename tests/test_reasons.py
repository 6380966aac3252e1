"""Why ESGD as shipped and Algorithm 1 differ: the page tells what the records say."""

from pathlib import Path
from statistics import median

import pytest

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
    """At every seed: any longer memory ends lower than as shipped, more probes do not."""
    shipped, often = ends("ESGD as shipped"), ends("a probe in 5 steps")
    longer = [label for label in reasons.CHANGES if label.startswith("memory of")]
    assert len(longer) == 3
    for label in (*longer, "never forgets", "damping 1e-4, absolute"):
        changed = ends(label)
        assert all(changed[seed] < shipped[seed] < often[seed] for seed in shipped)


@pytest.mark.parametrize("name", ["SGD", "RMSProp", "Jacobi SGD", "ESGD as shipped"])
def test_a_rate_that_falls_ends_higher_in_the_median(name):
    assert median(ends(f"{name}, cosine").values()) > median(ends(name).values())
