"""Networks with frozen layers: compared as they are; where nothing can be trained, it is told."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from equilibrate.cli import main
from equilibrate.study.problem import Problem

SMALL = ["--methods", "sgd", "esgd", "--trials", "2", "--epochs", "2"]
FROZEN = {"first": [0], "last": [2], "both": [0, 2]}


def _data():
    x = torch.linspace(-1, 1, 40).unsqueeze(1)
    return x, torch.sin(3 * x)


def _network(frozen):
    network = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    for place in frozen:
        network[place].requires_grad_(False)
    return network


def _problem(model):
    return Problem("frozen", model, _data, nn.functional.mse_loss, batch_size=10)


first, last, both = (_problem(lambda seed, own=own: _network(own)) for own in FROZEN.values())
nothing = _problem(lambda seed: nn.Identity())


def compare(name, folder, *more):
    words = [f"tests.study.test_frozen:{name}", *SMALL, "--out", str(folder), *more]
    return main(["compare", *words])


def numbers(folder):
    lines = Path(folder, "records.jsonl").read_text().splitlines()
    return {r["key"]: (r["status"], r["curve"]["error"]) for r in map(json.loads, lines)}


@pytest.mark.parametrize("name", ["first", "last"])
@pytest.mark.parametrize("at_once", [[], ["--at-once", "2"]], ids=["measured", "two at once"])
def test_a_network_with_a_frozen_layer_is_trained_as_it_is_alone(name, at_once, tmp_path, capsys):
    assert compare(name, tmp_path / "alone", "--at-once", "1") == 0
    assert compare(name, tmp_path / "asked", *at_once) == 0
    assert numbers(tmp_path / "asked") == numbers(tmp_path / "alone")
    errors = [error for _, error in numbers(tmp_path / "asked").values()]
    assert all(error[-1] != error[0] for error in errors)  # what is not frozen moved


@pytest.mark.parametrize("name", ["both", "nothing"])
def test_a_network_without_anything_to_train_is_told_before_training(name, tmp_path, capsys):
    assert compare(name, tmp_path / "out") == 2
    (told,) = capsys.readouterr().err.strip().splitlines()
    assert told.startswith("equilibrate compare: frozen: the network has no parameter")
    assert not (tmp_path / "out").exists()
