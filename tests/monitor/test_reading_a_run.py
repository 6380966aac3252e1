"""What docs/reading-a-run.md reads from three runs stands in their records."""

import pytest

from benchmarks import reading_a_run

TIMES = "preconditioned/sharpness_times_lr"
FLAT = f"layers/{reading_a_run.LAYER}/share_flat"


@pytest.fixture(scope="module")
def runs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading_a_run, "STEPS", 45)
        return {name.split(":")[0]: run() for name, (_, run) in reading_a_run.RUNS.items()}


def test_a_healthy_run_climbs_to_the_limit_and_its_layers_live(runs):
    records = runs["healthy"]
    limit = records[0]["preconditioned/stability_limit"]
    assert records[0][TIMES] < limit / 2
    assert 0.9 * limit < max(record[TIMES] for record in records[:8]) < 1.5 * limit
    assert max(record[FLAT] for record in records) < 0.4
    assert records[-1]["loss"] < records[0]["loss"] / 2


def test_a_rate_that_is_too_high_shows_before_the_first_step_and_kills_the_layer(runs):
    records = runs["learning rate too high"]
    assert records[0][TIMES] > records[0]["preconditioned/stability_limit"]
    assert records[1]["loss"] > 3 * records[0]["loss"]
    assert records[0][FLAT] < 0.4
    assert records[2][FLAT] > 0.8
    assert records[-1][FLAT] == 1
    assert records[-1][TIMES] < 0.5
    assert records[-1][f"layers/{reading_a_run.LAYER}/share_unseen"] < 0.5


def test_a_dead_layer_was_never_curved_though_the_rate_is_fine(runs):
    records = runs["a dead layer"]
    assert all(record[TIMES] < record["preconditioned/stability_limit"] for record in records)
    for record in (records[0], records[-1]):
        assert record[FLAT] > 0.9
        assert record[f"layers/{reading_a_run.LAYER}/share_unseen"] > 0.9
        assert record[f"layers/{reading_a_run.LAYER}/diagonal/median"] == 0
