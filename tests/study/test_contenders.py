"""Who `equilibrate compare` lets in, and whom it refuses before anything is trained."""

import json
import sys

import pytest
import torch

from equilibrate.cli import main
from equilibrate.study import command
from equilibrate.study.compare import Plan
from equilibrate.study.contenders import find_method
from equilibrate.study.find import find_problem
from equilibrate.study.rehearse import rehearse
from tests.study.page import FOLDER, SMALL, said

OPTIMIZERS = """
import torch

from equilibrate.study import LogUniform, Method

lbfgs = Method("lbfgs", torch.optim.LBFGS, {"lr": LogUniform(0.1, 1.0)})
"""

# Methods that cannot train the page's network, and what the one line says of each.
UNABLE = {
    "torch.optim:Muon": "--methods muon gives the hidden matrices to Muon and all else to AdamW",
    "torch.optim:SparseAdam": "--methods adam takes dense ones",
    "torch.optim:LBFGS": "--methods equilibrate.rivals.lbfgs:LBFGS is given the closure",
    "optimizers:lbfgs": "lbfgs cannot train wave",
}


@pytest.mark.parametrize("name", UNABLE)
def test_a_method_that_cannot_train_is_named_before_anything_is_trained(name, here, capsys):
    (here / "optimizers.py").write_text(OPTIMIZERS)
    sys.modules.pop("optimizers", None)
    assert main(["compare", "wave:wave", *SMALL, "--methods", "sgd", name]) == 2
    last = said(capsys)[-1]
    assert UNABLE[name] in last
    assert last.startswith("equilibrate compare: ")
    assert "sgd cannot" not in last
    assert not (here / "out").exists()


def test_a_network_without_a_hidden_matrix_is_not_for_muon(here, capsys):
    (here / "linear.py").write_text(
        "from dataclasses import replace\nfrom torch import nn\nfrom wave import wave\n"
        "linear = replace(wave, model=lambda seed: nn.Linear(1, 1))\n"
    )
    sys.modules.pop("linear", None)
    assert main(["compare", "linear:linear", *SMALL, "--methods", "muon"]) == 2
    last = said(capsys)[-1]
    assert "there is no hidden matrix for Muon" in last
    assert last.endswith(": --methods adamw trains any network")


def test_the_way_out_that_lbfgs_is_told_trains(here, capsys):
    words = ["--methods", "equilibrate.rivals.lbfgs:LBFGS", "--trials", "1", "--epochs", "1"]
    assert main(["compare", "wave:wave", *SMALL, *words]) == 0


def test_the_named_rivals_train_together(here, capsys):
    names = ["adamw", "muon", "esgd-nesterov"]
    assert main(["compare", "wave:wave", *SMALL, "--methods", *names]) == 0
    lines = (here / FOLDER / "records.jsonl").read_text().splitlines()
    found = {r["method"]: r["settings"] for r in map(json.loads, lines)}
    assert set(found) == set(names)
    assert found["esgd-nesterov"].items() >= {"momentum": 0.9, "nesterov": True}.items()


def test_a_rehearsal_leaves_torch_s_generator_and_the_data_alone(here):
    problem = find_problem("wave:wave", {})
    inputs = problem.cases[0].clone()
    before = torch.get_rng_state()
    rehearse(Plan(problem, [find_method("esgd"), find_method("adam")]), torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(problem.cases[0], inputs)
    assert len(problem.cases[0]) == 1000


PLACES = {"here": ([], 1), "a cluster's processors": (["--cluster", "head:1"], 1),
          "a cluster's GPUs": (["--cluster", "head:1", "--device", "cuda"], 0)}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_rehearsal_is_only_made_where_the_device_is_at_hand(place, here, monkeypatch):
    made, (words, times) = [], PLACES[place]

    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "rehearse", lambda plan, device: made.append(device.type))
    monkeypatch.setattr(command, "_compare", stop)
    assert main(["compare", "wave:wave", *SMALL, *words]) == 130
    assert made == ["cpu"] * times


@pytest.mark.parametrize("name", ["optimizers:lbfgs", "optimizers.py:lbfgs"])
def test_a_method_of_the_users_own_file_is_found(name, here):
    (here / "optimizers.py").write_text(OPTIMIZERS)
    sys.modules.pop("optimizers", None)
    sys.path.insert(0, str(here))
    assert find_method(name).name == "lbfgs"


def test_a_file_that_misses_a_module_of_its_own_keeps_its_traceback(here):
    """Its name begins with that of the file's: it is not the file that is missing."""
    (here / "mymod.py").write_text("import my\n")
    sys.modules.pop("mymod", None)
    with pytest.raises(ModuleNotFoundError, match="'my'"):
        main(["compare", "wave:wave", *SMALL, "--methods", "mymod:X"])
