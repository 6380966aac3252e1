"""A record in one line: what matters is there, from any record, live or read back."""

import json
import math

import pytest
import torch

from equilibrate import ESGD
from equilibrate.monitor import JSONLines, Monitor, summary
from tests.monitor.watched import EVERY_OPTIMIZER, measured

TIMES, LIMIT = "preconditioned/sharpness_times_lr", "preconditioned/stability_limit"
OWN = {"preconditioned/diagonal": "optimizer's equilibration"}
CURVED = {"condition_median": 30.0, "preconditioned/condition_median": 4.0}
TENTH = {"condition_top_tenth": 7.0, "preconditioned/condition_top_tenth": 2.0}

# What is added to step and loss, and what is added to the line.
RECORDS = {
    "nothing": ({}, ""),
    "below": (OWN | {TIMES: 1.5, LIMIT: 2.0}, "; lr*sharpness 1.5 of limit 2"),
    "at": (OWN | {TIMES: 2.0, LIMIT: 2.0}, "; lr*sharpness 2 of limit 2"),
    "above": (OWN | {TIMES: 2.5, LIMIT: 2.0}, "; lr*sharpness 2.5 ABOVE its limit 2"),
    "overflown": (OWN | {TIMES: None, LIMIT: 2.0}, "; lr*sharpness not finite of limit 2"),
    "no product": (
        {"preconditioned/diagonal": "monitor's equilibration", "preconditioned/no_product": "why"},
        "; lr*sharpness not known (why)",
    ),
    "no product, but the sharpness": (
        {"preconditioned/diagonal": "monitor's equilibration", "preconditioned/no_product": "why",
         "sharpness": 1.25},
        "; sharpness 1.25, lr*sharpness not known (why)",
    ),
    "before its owner was told": ({TIMES: 1.5, LIMIT: 2.0}, ""),
    "condition": (CURVED | TENTH, "; condition 30, with its diagonal 4"),
    "of two": (
        CURVED | {"preconditioned/diagonal": "monitor's equilibration and optimizer's jacobi"},
        "; lr*sharpness not known (); condition 30, with its diagonal and ESGD's 4",
    ),
    "half not curved": (
        CURVED | TENTH | {"condition_median": math.inf},
        "; condition 7, with its diagonal 2",
    ),
    "half not curved, from JSON": (
        CURVED | TENTH | {"preconditioned/condition_median": None},
        "; condition 7, with its diagonal 2",
    ),
    "known from below": (
        CURVED | {"condition_median_low": 20.0, "condition_median_high": math.inf},
        "; condition at least 20, with its diagonal 4",
    ),
    "known from below, from JSON": (
        CURVED | {"condition_median_low": 20.0, "condition_median_high": None},
        "; condition at least 20, with its diagonal 4",
    ),
    "known from below, and a tenth": (
        CURVED | TENTH | {"condition_median_low": 20.0, "condition_median_high": math.inf},
        "; condition 7, with its diagonal 2",
    ),
    "flat": (
        {"layers/a.b/share_flat": 0.25, "layers/c/share_flat": 0.5},
        "; flattest c, 50%",
    ),
    "curved everywhere": ({"layers/a.b/share_flat": 0.0}, ""),
    "dead": (
        {f"layers/{name}/share_flat": 0.9 for name in "abcd"} | {"layers/e/share_flat": 0.5},
        "; DEAD: a, b and 2 more",
    ),
    "dead, the loss a little higher": (
        {"layers/a/share_flat": 1.0, "loss_growth": 999.0}, "; DEAD: a"
    ),
    "flat where the loss has exploded": (
        {"layers/a/share_flat": 1.0, "layers/b/share_flat": 1.0, "loss_growth": 3e7},
        "; DEAD or saturated, for the loss has grown 3e+07 times: a, b",
    ),
    "dead, no growth in the file": ({"layers/a/share_flat": 1.0, "loss_growth": None}, "; DEAD: a"),
    "error": (
        OWN | {TIMES: 1.0, LIMIT: 2.0}
        | {"layers/a/relative_error": 0.125, "layers/b/relative_error": math.nan},
        "; lr*sharpness 1 of limit 2; diagonal known to ±12% (the worst: a)",
    ),
    "error of another's diagonal": (
        {"preconditioned/diagonal": "optimizer's squared gradient", TIMES: 1.0, LIMIT: 2.0,
         "layers/a/relative_error": 0.125},
        "; lr*sharpness 1 of limit 2",
    ),
    "unmeasured": (OWN | {"unmeasured": "It is so."}, "; not measured: It is so."),
}  # fmt: skip


@pytest.mark.parametrize(("added", "said"), RECORDS.values(), ids=RECORDS.keys())
def test_every_part_of_the_line(added, said):
    assert summary({"step": 3, "loss": 0.51234} | added) == f"step 3: loss 0.512{said}"


@EVERY_OPTIMIZER
def test_a_record_and_its_line_in_a_file_read_alike(make, tmp_path):
    record = measured(make, probes=4)[0]
    JSONLines(tmp_path / "run.jsonl")(record)
    line = summary(record)
    assert summary(json.loads((tmp_path / "run.jsonl").read_text())) == line
    assert line.count("\n") == 0
    assert f"lr*sharpness {record[TIMES]:.3g}" in line
    assert f"condition {record['condition_median']:.3g}, " in line


NO_RECORDS = {"None": (None, "got NoneType"), "a line": ("{}", "got str"), "another": ({}, "loss")}


@pytest.mark.parametrize(("record", "says"), NO_RECORDS.values(), ids=NO_RECORDS.keys())
def test_what_is_no_record_is_refused_with_the_right_line(record, says):
    with pytest.raises((TypeError, ValueError), match=says) as error:
        summary(record)
    assert "if record: print(summary(record))" in str(error.value)


def test_a_loss_that_is_not_finite_is_no_number_in_the_file_and_said_so():
    assert summary({"step": 3, "loss": None}) == "step 3: loss not finite"


def test_a_dead_layer_of_a_run_is_named():
    weight, dead = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizer = ESGD([weight, dead])
    loss = (weight**2).sum() + 0 * dead.sum()
    optimizer.probe(loss)
    record = Monitor([("w", weight), ("off", dead)], optimizer, lambda r: None)(loss)
    assert "; DEAD: off; diagonal known to ±" in summary(record)


FIRSTS = {"a number": (0.5, 4e3), "zero": (0.0, None), "below zero": (-1.0, None),
          "not finite": (math.nan, None)}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The monitor cannot measure")
@pytest.mark.parametrize(("first", "growth"), FIRSTS.values(), ids=FIRSTS)
def test_the_growth_is_over_the_loss_of_the_first_record(first, growth):
    weight, seen = torch.ones((), requires_grad=True), []
    monitor = Monitor([("w", weight)], torch.optim.SGD([weight]), seen.append, every=1, budget=None)
    for loss in (first, 2e3):
        monitor(weight**2 - 1 + loss)
    assert seen[1]["loss"] == 2e3
    assert seen[1].get("loss_growth") == growth


def test_a_fresh_optimizer_is_told_to_probe_first_and_that_helps():
    weight = torch.ones(2, requires_grad=True)
    optimizer, loss = ESGD([weight]), (weight**2).sum()
    lines = []
    for _ in range(2):
        lines.append(summary(Monitor([("w", weight)], optimizer, lambda r: None)(loss)))
        optimizer.probe(loss)
    assert "(ESGD has no diagonal yet for what it trains: call optimizer.probe(loss) " in lines[0]
    assert "lr*sharpness 0.0" in lines[1]
