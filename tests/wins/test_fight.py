"""The fight in small: seconds on a CPU, all of its parts, and the laws it promises."""

import copy
import json
import math
import sys
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from equilibrate import ESGD
from equilibrate.paper.records import NotRecorded
from equilibrate.rivals.muon import MuonAdamW
from equilibrate.rivals.soap import MissingRival
from equilibrate.study.journal import read_records
from equilibrate.study.space import LogUniform
from equilibrate.wins import command
from equilibrate.wins.arena import Arena, Job, trainer
from equilibrate.wins.fight import Plan, fight, tuned
from equilibrate.wins.fighters import FIGHTERS, SHIPPED_RATE, USUAL
from equilibrate.wins.grid import at_an_end, rates
from equilibrate.wins.page import standing
from equilibrate.wins.reading import costs, levels, scores, verdict
from equilibrate.wins.tasks import TASKS
from equilibrate.wins.timing import Pace

SMALL = replace(TASKS["decays"].shortened(20), fighters=("esgd", "adamw", "lbfgs"))
PLAN = Plan(tuning=(0,), finals=(1, 2, 3), per_decade=1, extensions=1)
PACE = {"esgd": Pace(2e-3, first=30.0), "adamw": Pace(1e-3), "lbfgs": Pace(5e-3)}


@pytest.fixture(scope="module")
def fought(tmp_path_factory):
    out = tmp_path_factory.mktemp("wins")
    return out, fight([SMALL], PLAN, Arena(out))[0]


def test_all_have_equally_many_rates_over_equally_many_decades(fought):
    _, result = fought
    assert len({len(grid) for grid in result.grids.values()}) == 1
    widths = {round(math.log10(grid[-1] / grid[0]), 6) for grid in result.grids.values()}
    assert len(widths) == 1


@pytest.mark.parametrize("name", FIGHTERS)
def test_every_range_is_two_decades(name):
    where = FIGHTERS[name]().space["lr"]
    assert isinstance(where, LogUniform)
    assert where.decades == pytest.approx(2)


def test_finals_meet_no_instance_of_the_tuning(fought):
    _, result = fought
    seen = {r["instance"] for rows in result.tuning.values() for r in rows}
    final = {r["instance"] for rows in result.finals.values() for r in rows}
    assert not seen & final
    with pytest.raises(ValueError, match="must not be used"):
        Plan(tuning=(0, 1), finals=(1, 2))


def test_a_second_fight_trains_nothing(fought):
    out, result = fought
    before = (out / "records/decays/records.jsonl").read_bytes()
    again = fight([SMALL], PLAN, Arena(out, frozen=True))[0]
    assert (out / "records/decays/records.jsonl").read_bytes() == before
    assert again.best == result.best


def test_a_frozen_arena_says_what_is_missing(tmp_path):
    with pytest.raises(NotRecorded, match="not recorded"):
        fight([SMALL], PLAN, Arena(tmp_path, frozen=True))


def test_records_name_their_task_fighter_and_origin(fought):
    out, _ = fought
    for record in read_records(out / "records" / "decays").values():
        assert record["task"] == "decays"
        assert record["fighter"] in SMALL.fighters
        assert record["provenance"]["versions"]["torch"] == str(torch.__version__)
    assert not (out / "training").exists() or not any((out / "training").iterdir())


def test_the_same_trial_in_a_process_of_its_own_is_the_same(fought, tmp_path):
    out, result = fought
    job = Job(SMALL, "adamw", 1, (result.best["adamw"],))
    arena = Arena(tmp_path, workers=2)
    arena.train([job], "one")
    (here,) = Arena(out).find([job])
    (there,) = arena.find([job])
    assert there["final_error"] == here["final_error"]


def _faulty(folder, instance):
    """No problem: a fault at once for instance 0, later, and with a trace, for every other one."""
    if instance:
        (folder / str(instance)).touch()
        time.sleep(0.2)
    raise ArithmeticError("no such instance")


def test_jobs_that_have_not_begun_when_one_fails_never_begin(tmp_path):
    task = replace(SMALL, problem=partial(_faulty, tmp_path))
    jobs = [Job(task, "adamw", instance, (0.1,)) for instance in range(40)]
    with pytest.raises(ArithmeticError):
        Arena(tmp_path / "out", workers=2).train(jobs, "")
    assert sum(path.is_file() for path in tmp_path.iterdir()) < 20


def test_the_reading_agrees_with_the_records(fought):
    _, result = fought
    by_name = {score.fighter: score for score in scores(result, PACE)}
    errors = sorted(r["final_error"] for r in result.finals["esgd"])
    assert by_name["esgd"].error.median == errors[1]
    found = verdict(result, PACE)
    assert found.rival in ("adamw", "lbfgs")
    assert standing(result, PACE) in ("wins", "ahead", "level", "mixed", "behind", "loses")
    table = costs([result], [PACE])
    assert {len(row) for row in table.values()} == {len(levels(result)) * 3}


def record(rate, error):
    status = "finished" if error < math.inf else "diverged"
    return {"settings": {"lr": rate}, "final_error": error, "status": status}


def test_of_rates_that_cannot_be_told_apart_the_lowest_is_chosen():
    assert tuned([record(0.1, 1.01), record(1.0, 1.0), record(0.01, 1.1)]) == 0.1


def test_a_rate_that_failed_once_is_not_chosen():
    assert (
        tuned([record(0.1, 1.0), record(0.1, 1.0), record(1.0, 0.0), record(1.0, math.inf)]) == 0.1
    )
    assert tuned([record(0.1, math.inf), record(1.0, math.inf)]) == 0.1


def test_grids_grow_at_both_ends():
    where = LogUniform(0.01, 1.0)
    narrow, wide = rates(where), rates(where, extensions=1)
    assert wide[2:-2] == narrow
    assert at_an_end({"a": narrow[0]}, {"a": wide}) == []


def test_muon_takes_hidden_matrices_and_goes_on_from_its_state():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = MuonAdamW(network.parameters(), lr=1e-2)
    assert [p.shape for p in optimizer.param_groups[0]["params"]] == [(4, 4)]

    def step(model, chosen):
        chosen.zero_grad()
        model(torch.ones(3, 2)).square().mean().backward()
        chosen.step()

    step(network, optimizer)
    twin = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    twin.load_state_dict(network.state_dict())
    other = MuonAdamW(twin.parameters(), lr=1e-2)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch shares tensors
    for model, chosen in ((network, optimizer), (twin, other)):
        step(model, chosen)
    for one, two in zip(network.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, two)


def test_the_command_writes_a_page_and_figures(tmp_path, capsys):
    given = ["image-64-sine", "--fighters", "esgd", "adamw", "--out", str(tmp_path)]
    given += ["--epochs", "2", "--tuning", "1", "--finals", "2", "--per-decade", "1"]
    given += ["--extensions", "0", "--first", "7"]
    assert command.main([*given, "--records-only"]) == 0
    assert not list(tmp_path.glob("*.png"))
    assert command.main([*given, "--frozen"]) == 0  # draws what is recorded
    page = (tmp_path / "wins.md").read_text()
    assert "image-64-sine" in page
    assert "on instance 7;" in page
    assert "Finals: instances 8 to 9." in page
    for name in ("summary", "curves", "fields-image-64-sine"):
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
        assert f"({name}.png)" in page
    (timing,) = tmp_path.glob("records/timing-*.json")
    assert set(json.loads(timing.read_text())["data"]["seconds_per_update"]) == {"esgd", "adamw"}


def test_a_missing_rival_is_told_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    jobs = [Job(SMALL, fighter, 1, (1e-3,)) for fighter in ("adamw", "soap")]
    with pytest.raises(MissingRival, match=r"equilibrate\[wins\]"):
        Arena(tmp_path).train(jobs, "two")
    assert not read_records(tmp_path / "records" / "decays")


def test_ours_train_in_the_finals_with_the_rate_as_shipped(fought):
    _, result = fought
    assert set(result.shipped) == {"esgd"}
    assert {r["settings"]["lr"] for r in result.shipped["esgd"]} == {SHIPPED_RATE}
    assert [r["instance"] for r in result.shipped["esgd"]] == list(PLAN.finals)
    assert ESGD([torch.ones(1, requires_grad=True)]).defaults["lr"] == SHIPPED_RATE


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    assert command.main(["no-such-task", "--out", str(tmp_path)]) == 2
    assert "image-64-sine" in capsys.readouterr().err
    assert command.main(["decays", "--fighters", "muon", "--out", str(tmp_path)]) == 2
    assert "must be among" in capsys.readouterr().err


OPTIONS = {
    "too large an instance": (["--first", "9" * 20], "below 2^63"),
    "too many workers": (["--workers", "9" * 20], "from 1 to 1024"),
    "fewer than no extensions": (["--extensions", "-1"], "0 or more"),
    "a ramp longer than the run": (["--ramp", "2"], "from 0 to below 1"),
    "no ramp at all": (["--ramp", "nan"], "from 0 to below 1"),
    "a limit in words": (["--growth-limit", "x"], "above 1, or none"),
    "a limit below one": (["--growth-limit", "0.5"], "above 1, or none"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_out_of_range_is_refused_before_anything_is_trained(option, tmp_path, capsys):
    given, words = OPTIONS[option]
    short = ["--epochs", "1", "--fighters", "esgd", "adamw", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as stop:
        command.main(["decays", *short, *given])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fighter", [f for f in (*USUAL, "esgd-plain") if f != "soap"])
def test_every_fighter_trains_a_field(fighter):
    job = Job(TASKS["image-64-sine"].shortened(2), fighter, 0, (1e-3,))
    one = trainer(job, FIGHTERS[fighter]().space["lr"].low, "cpu")
    before = one.errors()[0]
    one.advance(16)
    assert one.errors()[0] < before
