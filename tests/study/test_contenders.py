"""Who `equilibrate compare` lets in, and whom it refuses before anything is trained."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from equilibrate.cli import main
from equilibrate.curvature.second_derivatives import REPLACE
from equilibrate.study import command
from equilibrate.study.compare import Plan
from equilibrate.study.contenders import CONTENDERS, find_method
from equilibrate.study.find import find_problem
from equilibrate.study.naming import digest
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


ATTENTION = """
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from equilibrate.study import Problem


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x).mean((1, 2)).unsqueeze(1)


class Differentiable(Reader):
    def forward(self, x):
        with sdpa_kernel(SDPBackend.MATH):
            return super().forward(x)


def data():
    x = torch.randn(40, 3, 4, generator=torch.Generator().manual_seed(0))
    return x, x[:, :1, 0].sin()


fused = Problem("fused", lambda seed: Reader(), data, nn.functional.mse_loss, batch_size=20)
math = Problem("math", lambda seed: Differentiable(), data, nn.functional.mse_loss, batch_size=20)
"""


def test_attention_is_told_the_way_out_that_works_here(here, capsys, monkeypatch):
    """On a CPU where it has a second derivative, and where it has none, as on a GPU."""
    (here / "attention.py").write_text(ATTENTION)
    sys.modules.pop("attention", None)
    words = [*SMALL, "--methods", "sgd", "esgd"]
    assert main(["compare", "attention:fused", *words]) == 0
    monkeypatch.delitem(REPLACE, "ScaledDotProductFlashAttentionForCpuBackward0")
    assert main(["compare", "attention:fused", *words]) == 2
    last = said(capsys)[-1]
    assert "esgd cannot train fused" in last
    assert "sgd cannot" not in last.replace("esgd", "")
    assert "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)" in last
    assert "math_attention" not in last  # which needs the loop, and the loop is ours
    assert main(["compare", "attention:math", *words]) == 0


MINE = """
from dataclasses import replace

import torch

from equilibrate.study import LogUniform, Method
from equilibrate.study.contenders import CONTENDERS

RATES = {"lr": LogUniform(0.00095, 0.95)}


class Mine(torch.optim.SGD):
    def __init__(self, parameters, lr=0.03):
        super().__init__(parameters, lr=1.0 * lr)


wider = replace(CONTENDERS["adam"], space={"lr": LogUniform(1e-9, 1e-8)})
taken = Method("sgd", torch.optim.Adam, RATES)
mine = Method("mine", Mine, RATES)
torchs = Method("torchs", torch.optim.Adam, RATES)
"""


def mine(here, *change):
    (here / "mine.py").write_text(MINE.replace(*change) if change else MINE)
    sys.modules.pop("mine", None)


def recorded():
    lines = (FOLDER / "records.jsonl").read_text().splitlines()
    return [(r["method"], r["final_error"]) for r in map(json.loads, lines)]


@pytest.mark.parametrize("names", [("adam", "mine:wider"), ("mine:taken", "sgd")])
def test_two_methods_of_one_name_are_refused(names, here, capsys):
    """The rows of one would stand under the label of the other."""
    mine(here)
    assert main(["compare", "wave:wave", *SMALL, "--methods", *names]) == 2
    last = said(capsys)[-1]
    assert f"{names[0]} and {names[1]} are two methods of one name" in last
    assert "Method(name=...)" in last
    assert not (here / "out").exists()


def test_one_method_asked_for_twice_is_compared_once(here, capsys):
    mine(here)
    assert main(["compare", "wave:wave", *SMALL, "--methods", "mine:mine", "mine:mine"]) == 0
    assert len(recorded()) == 2


EDITED = {
    "a class": ("mine:Mine", "1.0 * lr", "0.5 * lr"),
    "a method of one's own class": ("mine:mine", "1.0 * lr", "0.5 * lr"),
    "a method of another class": ("mine:torchs", "optim.Adam,", "optim.SGD,"),
}


@pytest.mark.parametrize("name", EDITED)
def test_an_optimizer_that_was_edited_is_trained_again(name, here, capsys):
    method, before, after = EDITED[name]
    words = ["compare", "wave:wave", *SMALL, "--methods", method]
    mine(here)
    assert main(words) == 0
    assert main(words) == 0
    first = recorded()
    assert len(first) == 2  # what was not edited is found
    mine(here, before, after)
    assert main(words) == 0
    assert len(recorded()) == 4
    assert recorded()[2:] != first


def test_a_method_that_takes_a_known_name_at_another_time_has_trials_of_its_own(here, capsys):
    mine(here)
    words = ["compare", "wave:wave", *SMALL, "--methods"]
    assert main([*words, "sgd"]) == 0
    assert main([*words, "mine:taken"]) == 0
    assert len(recorded()) == 4


KNOWN = [*CONTENDERS, "torch.optim:NAdam", "equilibrate.rivals.lbfgs:LBFGS"]


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_by_its_name_keeps_the_key_of_published_records(name):
    """The fields of a trial as they were before there was a code: nothing else is hashed."""
    method = find_method(name)
    problem = SimpleNamespace(name="p", fingerprint="f", batch_size=5)
    (trial,) = Plan(problem, [method], trials=1, epochs=2).searched()
    (settings,) = method.settings(1)
    parts = {"problem": "p", "fingerprint": "f", "method": name, "settings": settings, "seed": 0,
             "batch_size": 5, "epochs": 2, "precision": "float32"}  # fmt: skip
    assert trial.describe() == {"key": digest(parts)[:16], **parts}
