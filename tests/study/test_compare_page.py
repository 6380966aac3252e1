"""What docs/compare.md says beyond its first example: cases held out, attention, draws."""

import json
import sys

import pytest
import torch
from torch import nn

from equilibrate.cli import main, make_parser
from equilibrate.study.contenders import CONTENDERS
from tests.study.page import FILE, PAGE, SMALL


def block(words):
    """The block of the page that holds these words."""
    (found,) = [part for part in PAGE.split("```python\n")[1:] if words in part.split("```")[0]]
    return found.split("```")[0]


@pytest.fixture
def page(here):
    """The page's own file with its later blocks, and a problem with attention."""
    attention = """
def sequences():
    x = torch.randn(40, 3, 8, generator=torch.Generator().manual_seed(0))
    return x, x[:, 0, :1].sin()

attention = Problem("attention", lambda seed: Reader(), sequences, nn.functional.mse_loss, None, 20)
"""
    (here / "page.py").write_text(FILE + block("HELD_OUT") + block("SDPBackend") + attention)
    sys.modules.pop("page", None)
    return here


def test_the_error_is_that_of_the_cases_held_out_and_the_loss_that_of_the_others(page):
    sys.path.insert(0, str(page))
    from page import held

    inputs, targets = held.cases
    output = held.network(0)(inputs)
    out = torch.arange(1000) % 5 == 0
    one, other = (nn.functional.mse_loss(output[w], targets[w, :1]) for w in (out, ~out))
    torch.testing.assert_close(held.reported(output, targets), one)
    torch.testing.assert_close(held.loss(output, targets), other)


@pytest.mark.parametrize("problem", ["held", "attention"])
def test_the_page_s_problems_are_compared(problem, page, capsys):
    words = [*SMALL, "--methods", "sgd", "esgd", "--out", "folder"]
    assert main(["compare", f"page:{problem}", *words]) == 0
    lines = (page / "folder" / "records.jsonl").read_text().splitlines()
    assert {json.loads(line)["method"] for line in lines} == {"sgd", "esgd"}


def test_the_draws_that_the_page_names_are_those():
    told = PAGE.split("first four are")[1].split(", all within")[0].replace(" and", ",")
    drawn = sorted(settings["lr"] for settings in CONTENDERS["esgd"].settings(4))
    assert [float(number) for number in told.split(",")] == drawn
    assert drawn[-1] < 10 * drawn[0]


def test_the_methods_that_the_page_says_are_compared_are_the_default():
    told = PAGE.split("names others are ")[1].split(" (ESGD")[0].replace(" and", ",")
    names = [name.strip("` ") for name in told.replace("\n", " ").split(",")]
    assert list(make_parser("compare").parse_args(["mnist"]).methods) == names
    assert CONTENDERS["esgd-nesterov"].fixed == {"momentum": 0.9, "nesterov": True}
