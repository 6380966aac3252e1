"""What the crew of a cluster does with groups, messages and losses; no cluster is needed."""

import json

import pytest

from equilibrate.study import provenance
from equilibrate.study.cluster.crew import ClusterCrew
from equilibrate.study.files import StudyError
from equilibrate.study.journal import read_records
from tests.study import real_study, small
from tests.study.cluster.pretended import Pretended

SEARCHES = pytest.mark.parametrize("halving", [False, True], ids=["random", "halving"])
STUDIES = pytest.mark.parametrize("study", [small, real_study], ids=["small", "real"])


def crew(**options):
    return ClusterCrew(Pretended(**options))


@pytest.fixture(scope="module")
def at_home(tmp_path_factory):
    """The numbers of local runs, by study and search."""
    return {
        (study.__name__, halving): small.numbers(
            study.run(tmp_path_factory.mktemp("home"), halving=halving)
        )
        for study in (small, real_study)
        for halving in (False, True)
    }


def check(folder, expected):
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert len(lines) == len({line["key"] for line in lines}) == len(expected)
    assert small.numbers(read_records(folder)) == expected
    assert not small.checkpoints(folder)


@STUDIES
@SEARCHES
def test_numbers_are_those_of_a_local_run(study, halving, at_home, tmp_path):
    study.run(tmp_path, halving=halving, crew=crew())
    check(tmp_path, at_home[study.__name__, halving])


@pytest.mark.parametrize("slots", [1, 7])
def test_the_number_of_workers_changes_nothing(slots, at_home, tmp_path):
    small.run(tmp_path, halving=True, crew=crew(slots=slots))
    check(tmp_path, at_home["tests.study.small", True])


@SEARCHES
def test_a_worker_lost_at_any_message_costs_no_record(halving, at_home, tmp_path, capfd):
    undisturbed = crew()
    small.run(tmp_path / "first", halving=halving, crew=undisturbed)
    moments = range(1 + halving, undisturbed.workers.heard + 1, 3)
    for number in moments:
        folder = tmp_path / str(number)
        small.run(folder, halving=halving, crew=crew(lose=lambda n, at=number: n == at))
        check(folder, at_home["tests.study.small", halving])
    assert capfd.readouterr().err.count("a worker was lost") == len(moments)


@STUDIES
def test_workers_lost_again_and_again_cost_no_record(study, at_home, tmp_path):
    study.run(tmp_path, halving=True, crew=crew(lose=lambda number: number % 7 == 0))
    check(tmp_path, at_home[study.__name__, True])


def test_a_group_goes_on_from_its_last_checkpoint(tmp_path):
    seen = crew(lose=lambda number: number == 10)
    small.run(tmp_path, crew=seen)
    asked = [errand.checkpoint is not None for errand in seen.workers.errands]
    assert sorted(asked) == [False, False, False, True]


def test_what_is_started_on_a_cluster_is_finished_at_home_and_the_other_way_round(
    at_home, tmp_path
):
    expected = at_home["tests.study.small", False]
    with pytest.raises(small.Stopped):
        small.run(tmp_path / "a", crew=crew(), make_trainer=small.stopping(6))
    assert small.checkpoints(tmp_path / "a")
    small.run(tmp_path / "a")
    check(tmp_path / "a", expected)
    small.stopped(tmp_path / "b", 6)
    assert small.checkpoints(tmp_path / "b")
    small.run(tmp_path / "b", crew=crew())
    check(tmp_path / "b", expected)


def test_a_group_that_loses_every_worker_is_given_up_with_advice(tmp_path):
    with pytest.raises(StudyError, match=r"5 workers in a row .*--at-once N"):
        small.run(tmp_path, crew=crew(lose=lambda number: True))


def test_a_worker_with_another_version_is_refused(tmp_path, monkeypatch):
    name = "equilibrate.study.cluster.crew.versions"
    monkeypatch.setattr(name, lambda: {**provenance.versions(), "torch": "1.0"})
    with pytest.raises(StudyError, match=r"torch .*this process has 1\.0; install the same"):
        small.run(tmp_path, crew=crew())


def test_a_checkpoint_that_is_damaged_is_put_aside_and_its_trials_start_over(
    at_home, tmp_path, capfd
):
    small.stopped(tmp_path, 6)
    (path,) = small.checkpoints(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    small.run(tmp_path, crew=crew())
    assert "checkpoint not used" in capfd.readouterr().err
    (aside,) = small.checkpoints(tmp_path)
    assert "damaged" in aside.name
    assert small.numbers(read_records(tmp_path)) == at_home["tests.study.small", False]


def test_records_name_the_command_and_progress_reaches_the_end(tmp_path):
    moments = []
    records = small.run(tmp_path, crew=crew(), report=moments.append)
    assert {r["provenance"]["command"] for r in records.values()} == {provenance.command()}
    assert moments[-1].done == moments[-1].total
    assert (moments[-1].trials, moments[-1].waiting) == (0, 0)
    assert not any(moment.alone for moment in moments)
    assert {moment.method for moment in moments} == {"plain", "heavy"}
