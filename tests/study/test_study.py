"""A study: what is recorded, what is skipped, what is cut, and that a resume changes no bit."""

import dataclasses
import errno
import itertools
import json
import math

import pytest
import torch

from equilibrate.study import group as group_module
from equilibrate.study.files import StudyError
from equilibrate.study.journal import read_records
from equilibrate.study.search import Search
from equilibrate.study.study import run_study
from tests.study import small
from tests.study.small import (
    SmallTrainer,
    Stopped,
    checkpoints,
    numbers,
    run,
    stopped,
    stopping,
    trial,
    trials,
)
from tests.study.test_journal import refuse


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The numbers of a study that nothing disturbed, by whether it halves."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return {flag: numbers(run(folder / str(flag), halving=flag)) for flag in (False, True)}


def test_a_record_holds_what_the_plan_promises(tmp_path):
    first, third = (run(tmp_path)[listed.key] for listed in (trials()[0], trials()[2]))
    described = {k: first[k] for k in trials()[0].describe()}
    assert described == json.loads(json.dumps(trials()[0].describe()))
    assert first["curve"]["epoch"] == [0, 1, 2, 3, 4]
    assert first["curve"]["updates"] == [0, 3, 6, 9, 12]
    assert (first["status"], first["rung"], first["together"]) == ("finished", None, 3)
    assert first["final_error"] == first["curve"]["error"][-1]
    made = {
        "versions", "commit", "device", "machine", "threads", "seed", "command", "time", "seconds",
    }  # fmt: skip
    assert first["provenance"].keys() == made
    assert third["status"] == "diverged"
    assert third["final_error"] == third["curve"]["error"][-1]
    assert all(map(math.isfinite, third["curve"]["error"]))


def test_a_trial_not_finite_from_the_start_has_an_empty_curve(tmp_path):
    class Broken(SmallTrainer):
        def errors(self):
            return [math.nan for _ in self.trials]

    records = run(tmp_path, make_trainer=Broken)
    assert {record["status"] for record in records.values()} == {"diverged"}
    assert {record["final_error"] for record in records.values()} == {None}
    assert not checkpoints(tmp_path)


def test_a_diverged_trial_is_dropped_where_it_is_noticed(tmp_path):
    rows = []

    class Watched(SmallTrainer):
        def advance(self, iterations):
            rows.append((self.updates, len(self.trials)))
            super().advance(iterations)

    run(tmp_path, trials()[:3], make_trainer=Watched)
    assert rows == [(updates, 3 if updates < 3 else 2) for updates in range(12)]


@pytest.mark.parametrize("halving", [False, True])
@pytest.mark.parametrize("updates", range(1, 10))
def test_stopped_anywhere_and_resumed_with_other_habits(tmp_path, undisturbed, updates, halving):
    """Checkpoints less often, no groups but the remembered ones: the numbers are the same."""
    habits = {"halving": halving, "checkpoint_seconds": 1e9}
    stopped(tmp_path, updates, **habits)
    assert checkpoints(tmp_path)
    found = run(tmp_path, together=lambda trials: [[t] for t in trials], **habits)
    alone = [record for record in found.values() if record["together"] == 1]
    # Only the second method may have been split anew: its groups were not yet decided.
    assert {record["method"] for record in alone} <= {"heavy"}
    expected = [record for record in undisturbed[halving] if record["method"] == "plain"]
    assert [record for record in numbers(found) if record["method"] == "plain"] == expected


def test_a_finished_study_trains_nothing(tmp_path):
    first = run(tmp_path)
    before = (tmp_path / "records.jsonl").read_bytes()
    assert run(tmp_path, make_trainer=lambda trials: pytest.fail("trained again")) == first
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_an_enlarged_study_trains_only_what_is_new(tmp_path):
    made = []

    def make(trials):
        made.extend(trials)
        return SmallTrainer(trials)

    first = run(tmp_path, trials()[:2], make_trainer=make)
    again = run(tmp_path, make_trainer=make)
    assert [t.key for t in made] == [t.key for t in trials()]
    assert first.items() <= again.items()


def test_a_shorter_list_leaves_the_longer_ones_checkpoint_for_later(tmp_path):
    stopped(tmp_path, 5)
    (waiting,) = checkpoints(tmp_path)
    run(tmp_path, trials()[:1])
    assert checkpoints(tmp_path) == [waiting]
    restored = []

    class Watched(SmallTrainer):
        def load_state_dict(self, state):
            super().load_state_dict(state)
            restored.append(self.updates)

    run(tmp_path, make_trainer=Watched)
    assert restored == [5]
    assert len(read_records(tmp_path)) == len(trials())


def test_a_damaged_checkpoint_starts_its_group_over_and_changes_nothing(
    tmp_path, undisturbed, capsys
):
    stopped(tmp_path, 7)
    (path,) = checkpoints(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    assert numbers(run(tmp_path)) == undisturbed[False]
    assert str(path) in capsys.readouterr().err


def test_a_checkpoint_of_another_trainer_starts_its_group_over(tmp_path, undisturbed, capsys):
    class Other(SmallTrainer):
        def load_state_dict(self, state):
            raise KeyError("momentum")

    stopped(tmp_path, 7)
    assert numbers(run(tmp_path, make_trainer=Other)) == undisturbed[False]
    assert "another version" in capsys.readouterr().err


@pytest.mark.parametrize("append", range(8))
def test_a_disk_full_at_any_record_keeps_those_before(tmp_path, undisturbed, monkeypatch, append):
    lines = itertools.count()

    def reached(descriptor, data):
        return bytes(data[:7]) == b'{"batch' and next(lines) == append

    with monkeypatch.context() as patch:
        refuse(patch, "write", errno.ENOSPC, when=reached)
        with pytest.raises(StudyError, match="the disk is full"):
            run(tmp_path)
    assert len(read_records(tmp_path)) == append
    assert numbers(run(tmp_path)) == undisturbed[False]


@pytest.mark.parametrize("halving", [False, True])
@pytest.mark.parametrize("line", range(8))
def test_a_damaged_record_is_computed_again_to_the_same_bits(tmp_path, halving, line):
    expected = numbers(run(tmp_path, halving=halving))
    path = tmp_path / "records.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:line], b"?", *lines[line + 1 :], b""]))
    assert numbers(run(tmp_path, halving=halving)) == expected


def test_a_lost_record_of_a_dropped_trial_overrules_a_later_checkpoint(tmp_path, undisturbed):
    stopped(tmp_path, 7)  # the diverged trial is recorded, and not in the checkpoint
    path = tmp_path / "records.jsonl"
    assert path.read_bytes().count(b"\n") == 1
    path.write_bytes(b"?\n")
    assert numbers(run(tmp_path)) == undisturbed[False]


def test_seconds_count_training_alone_and_are_shared(tmp_path, monkeypatch):
    """A clock that moves by 4 in `advance`, and by far more in everything else."""
    clock = [0.0]

    class Timed(SmallTrainer):
        def advance(self, iterations):
            clock[0] += 4.0
            super().advance(iterations)

        def errors(self):
            clock[0] += 1000.0
            return super().errors()

        def state_dict(self):
            clock[0] += 1000.0
            return super().state_dict()

    monkeypatch.setattr(group_module.time, "perf_counter", lambda: clock[0])
    pair = [trial("plain", seed, lr=0.01) for seed in range(2)]
    with pytest.raises(Stopped):
        run(tmp_path, pair, make_trainer=type("Both", (stopping(5), Timed), {}))
    records = run(tmp_path, pair, make_trainer=Timed).values()
    assert [r["curve"]["seconds"] for r in records] == [[0.0, 6.0, 12.0, 18.0, 24.0]] * 2
    assert [r["provenance"]["seconds"] for r in records] == [24.0] * 2


@pytest.mark.parametrize("halving", [False, True])
def test_reported_work_adds_up(tmp_path, halving):
    before, after, last = [], [], []
    stopped(tmp_path, 5, halving=halving, report=before.append)
    run(tmp_path, halving=halving, report=after.append)
    every = len(trials()) * small.EPOCHS
    total = before[0].total
    assert total < every if halving else total == every
    assert after[-1].done == total
    for moments in (before, after):
        assert {moment.total for moment in moments} == {total}
        assert all(a.done <= b.done for a, b in itertools.pairwise(moments))
    assert 0 < before[-1].trained < before[-1].done < total
    assert 0 < after[-1].trained <= total - before[-1].trained + 1e-9
    run(tmp_path, [*trials(), trial("plain", 9, lr=0.01)], report=last.append)
    assert last[-1].trained == pytest.approx(small.EPOCHS)
    assert last[-1].done == last[-1].total == every + small.EPOCHS


def test_misfits_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="run them as two studies"):
        run(tmp_path / "a", [trial(lr=0.1)], search=Search((7,)))
    big = dataclasses.replace(small.problem(), batch_size=6)
    with pytest.raises(ValueError, match="batch size"):
        run_study(big, [trial(lr=0.1)], tmp_path / "a", make_trainer=SmallTrainer, together=list)
    assert not (tmp_path / "a").exists()
    with pytest.raises(ValueError, match="exactly one group"):
        run(tmp_path / "a", together=lambda trials: [trials[:1]])
    assert run(tmp_path / "b", []) == {}


def test_a_study_leaves_torchs_generator_alone(tmp_path):
    before = torch.get_rng_state()
    run(tmp_path, trials()[:2])
    assert torch.equal(torch.get_rng_state(), before)


def test_moments_count_what_diverged_once_also_over_a_resume(tmp_path):
    seen = []
    stopped(tmp_path, 6, report=seen.append)
    assert seen[-1].diverged == 1
    run(tmp_path, report=seen.append)
    counts = {moment.method: moment.diverged for moment in seen}
    assert counts == {"plain": 1, "heavy": 0}
    assert max(moment.diverged for moment in seen) == 1


def test_records_are_read_by_pandas_in_one_line(tmp_path):
    pandas = pytest.importorskip("pandas")
    records = run(tmp_path)
    table = pandas.read_json(tmp_path / "records.jsonl", lines=True)
    assert set(table["key"]) == set(records)
    assert table.set_index("key")["final_error"].to_dict() == pytest.approx(
        {key: record["final_error"] for key, record in records.items()}
    )
