"""A user's own code is a part of the fingerprint, whatever of it the numbers depend on."""

import functools
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from equilibrate.study.fingerprint import architecture, described
from equilibrate.study.own import is_own, name_of
from equilibrate.study.problems import BUILT_IN

HEAD = """
import enum
import functools
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import helpers
from equilibrate.study import Problem


class Net(nn.Module):
    def __init__(self, k=1.0):
        super().__init__()
        self.k, self.a = k, nn.Linear(1, 3)

    def forward(self, x):
        return self.k * self.scaled(torch.tanh(self.a(x))).mean(1, keepdim=True)

    def scaled(self, x):
        return x


def data():
    return torch.ones(4, 1), torch.ones(4, 1)


def made(loss=F.mse_loss, model=lambda seed: Net()):
    return Problem("own", model, data, loss, batch_size=2)


"""

# What follows the head, and a change of it that changes the numbers.
CHANGED = {
    "forward": ("p = made()", "torch.tanh", "torch.relu"),
    "a method that forward calls": ("p = made()", "return x\n", "return 2 * x\n"),
    "a module's number": ("p = made(model=lambda seed: Net(1.0))", "Net(1.0)", "Net(9.0)"),
    "a module's parent": (
        "class Child(Net):\n    pass\n\np = made(model=lambda seed: Child())", "tanh", "relu",
    ),
    "a module within torch's": (
        "p = made(model=lambda seed: nn.Sequential(nn.Linear(1, 1), Net()))", "tanh", "relu",
    ),
    "a constant that forward uses": (
        "K = 1.0\nclass Other(Net):\n    def forward(self, x):\n        return K * self.a(x)\n"
        "p = made(model=lambda seed: Other())", "K = 1.0", "K = 2.0",
    ),
    "a buffer that is not saved": (
        "class Other(Net):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('w', torch.tensor(1.0), persistent=False)\n"
        "p = made(model=lambda seed: Other())", "tensor(1.0)", "tensor(2.0)",
    ),
    "a hook on a layer of torch's": (
        "def model(seed):\n    layer = nn.Linear(1, 1)\n"
        "    layer.register_forward_hook(lambda m, x, y: 2 * y)\n    return layer\n"
        "p = made(model=model)", "2 * y", "3 * y",
    ),
    "a function given to a layer of torch's": (
        "act = lambda x: x.relu()\ndef model(seed):\n    layer = nn.Linear(1, 1)\n"
        "    layer.activation = act\n    return layer\np = made(model=model)", ".relu", ".tanh",
    ),
    "a constant": ("W = 1.0\np = made(lambda o, t: W * (o - t).abs().mean())", "W = 1", "W = 2"),
    "a constant that a comprehension uses": (
        "W = 1.0\np = made(lambda o, t: sum([W * e for e in (o - t).abs()]).sum())",
        "W = 1", "W = 2",
    ),
    "a helper": (
        "def h(e):\n    return e.abs()\n\np = made(lambda o, t: h(o - t).mean())", "abs", "square",
    ),
    "a helper of a helper": (
        "def g(e):\n    return e.abs()\n\ndef h(e):\n    return g(e)\n\n"
        "p = made(lambda o, t: h(o - t).mean())", "abs", "square",
    ),
    "a helper that remembers": (
        "@functools.cache\ndef h(n):\n    return n + 1.0\n\n"
        "p = made(lambda o, t: h(1) * (o - t).sum())",
        "n + 1.0", "n + 2.0",
    ),
    "a default": (
        "W = 1.0\ndef loss(o, t, w=W):\n    return w * (o - t).sum()\np = made(loss)",
        "W = 1", "W = 2",
    ),
    "a default by name": (
        "W = 1.0\ndef loss(o, t, *, w=W):\n    return w * (o - t).sum()\np = made(loss)",
        "W = 1", "W = 2",
    ),
    "a decorator of the user's": (
        "def times(f):\n    @functools.wraps(f)\n    def g(o, t):\n        return 1.0 * f(o, t)\n"
        "    return g\n\n@times\ndef loss(o, t):\n    return (o - t).sum()\np = made(loss)",
        "1.0 * f", "2.0 * f",
    ),
    "what torch decorates": (
        "@torch.autocast('cpu')\ndef loss(o, t):\n    return 1.0 * (o - t).sum()\np = made(loss)",
        "1.0 *", "2.0 *",
    ),
    "a lambda's next line": (
        "p = made(\n    lambda o, t: (\n        (o - t)\n        .abs().mean()))", "abs", "square",
    ),
    "a lambda's line after its colon": (
        "p = made(\n    lambda o, t:\n        (o - t).abs().mean())", "abs", "square",
    ),
    "a lambda's last line": (
        "p = made(\n    lambda o, t: F.huber_loss(o, t,\n        delta=1.0))", "=1.0", "=0.1",
    ),
    "what no file holds": (
        "exec('def loss(o, t):\\n    return 1.0 * (o - t).sum()')\np = made(loss)",
        "1.0 *", "2.0 *",
    ),
    "a set that no file holds": (
        "exec('def loss(o, t):\\n    return (o - t).sum() * (o.ndim in {1, 2, \"a\", \"b\"})')\n"
        "p = made(loss)", "1, 2", "1, 3",
    ),
    "a method's object": (
        "class B:\n    def __init__(self, d):\n        self.d = d\n"
        "    def loss(self, o, t):\n        return self.d['w'] * (o - t).sum()\n"
        "p = made(B({'w': 1.0}).loss)", "1.0})", "2.0})",
    ),
    "an object's method": (
        "class B:\n    def __call__(self, o, t):\n        return self.h(o - t).sum()\n"
        "    def h(self, e):\n        return e.abs()\np = made(B())", "abs", "square",
    ),
    "an object's property": (
        "class B:\n    @property\n    def w(self):\n        return 1.0\n"
        "    def __call__(self, o, t):\n        return self.w * (o - t).sum()\np = made(B())",
        "return 1.0", "return 2.0",
    ),
    "a partial in a class": (
        "class B:\n    h = functools.partial(torch.mul, other=1.0)\n"
        "    def __call__(self, o, t):\n        return self.h(o - t).sum()\np = made(B())",
        "=1.0", "=2.0",
    ),
    "an object's static method": (
        "class B:\n    @staticmethod\n    def h(e):\n        return e.abs()\n"
        "    def __call__(self, o, t):\n        return self.h(o - t).sum()\np = made(B())",
        "abs", "square",
    ),
    "an object's slot": (
        "class B:\n    __slots__ = ('w',)\n    def __call__(self, o, t):\n"
        "        return self.w * (o - t).sum()\nb = B()\nb.w = 1.0\np = made(b)", "= 1.0", "= 2.0",
    ),
    "a loss's buffer that is not saved": (
        "class L(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('w', torch.tensor(1.0), persistent=False)\n"
        "    def forward(self, o, t):\n        return self.w * (o - t).sum()\np = made(L())",
        "tensor(1.0)", "tensor(2.0)",
    ),
    "a loss's constant": (
        "W = 1.0\nclass L(nn.Module):\n    def forward(self, o, t):\n"
        "        return W * (o - t).sum()\np = made(L())", "W = 1", "W = 2",
    ),
    "a partial of an array": (
        "def loss(o, t, w):\n    return float(w[0]) * (o - t).sum()\n"
        "p = made(functools.partial(loss, w=np.array([1.0])))", "[1.0]", "[2.0]",
    ),
}  # fmt: skip

# Values that a function may hold.
HELD = {
    "dict": ("{'w': [1.0]}", "{'w': [2.0]}"),
    "set": ("{'a', 'b', 'c'}", "{'a', 'b', 'd'}"),
    "array": ("np.array([1.0])", "np.array([2.0])"),
    "array of objects": ("np.array([{}, 1], object)", "np.array([{}, 2], object)"),
    "numpy number": ("np.float32(1.0)", "np.float32(2.0)"),
    "complex number": ("1j", "2j"),
    "dataclass": ("D(1.0)", "D(2.0)"),
    "member": ("E.A", "E.B"),
    "class": ("D", "E"),
    "type": ("torch.float32", "torch.float64"),
    "function": ("F.mse_loss", "F.l1_loss"),
    "closure": ("(lambda w: lambda e: w * e)(1.0)", "(lambda w: lambda e: w * e)(2.0)"),
    "partial": ("functools.partial(sum, start=1)", "functools.partial(sum, start=2)"),
    "module": ("nn.Dropout(0.1)", "nn.Dropout(0.2)"),
    "one's own module": ("Net(1.0)", "Net(2.0)"),
}
HOLDING = """
@dataclass
class D:
    w: float

class E(enum.Enum):
    A = 1
    B = 2

def holding(held):
    return lambda o, t: (held, (o - t).sum())[1]

torch.manual_seed(0)
p = made(holding({}))
"""
CHANGED |= {
    f"held: {name}": (HOLDING.replace("{}", one), f"({one})", f"({other})")
    for name, (one, other) in HELD.items()
}


def print_of(path, text):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.p.fingerprint


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "helpers.py").write_text("def scale(e):\n    return 1.0 * e\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    sys.modules.pop("helpers", None)
    return tmp_path


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_of_what_the_numbers_depend_on_makes_another_problem(name, folder):
    text, before, after = CHANGED[name]
    text = HEAD + text + "\n"
    assert text.count(before) >= 1
    one, again = print_of(folder / "one.py", text), print_of(folder / "again.py", text)
    assert one == again != print_of(folder / "other.py", text.replace(before, after))


def test_a_helper_in_another_file_of_the_user_s(folder):
    text = HEAD + "p = made(lambda o, t: helpers.scale(o - t).mean())\n"
    one = print_of(folder / "one.py", text)
    (folder / "helpers.py").write_text("def scale(e):\n    return 3.00 * e\n")
    del sys.modules["helpers"]
    assert print_of(folder / "other.py", text) != one


PRINTS = """
import importlib, sys
for name in sys.argv[1:]:
    print(importlib.import_module(name).p.fingerprint)
"""


def test_every_process_finds_the_same(folder):
    """No address, and no order of a set, which is another in every process."""
    for place, (text, _, _) in enumerate(CHANGED.values()):
        (folder / f"case{place}.py").write_text(HEAD + text + "\n")
    names = [f"case{place}" for place in range(len(CHANGED))]
    words, found = [sys.executable, "-c", PRINTS, *names], []
    for seed in ("1", "2"):
        own = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(words, cwd=folder, env=own, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        found.append(run.stdout.split())
    assert found[0] == found[1]
    assert len(set(found[0])) > len(names) / 2


def test_the_built_in_problem_keeps_the_fingerprint_of_its_published_records():
    assert BUILT_IN["curves-like"](None).fingerprint == "f26f2cb94bc59f63"


OTHERS = [torch, nn.Linear, nn.functional.mse_loss, Path, os.path.join, sum, pytest.raises, dict]


@pytest.mark.parametrize("thing", OTHERS, ids=name_of)
def test_what_others_wrote_is_not_the_user_s(thing):
    assert not is_own(thing)


def test_a_user_s_file_of_a_name_that_python_has_too_is_the_user_s(folder):
    """As the page's own example, wave.py."""
    assert "wave" in sys.stdlib_module_names
    print_of(folder / "wave.py", HEAD + "p = made()\n")
    assert is_own(sys.modules["wave"].Net)


def test_an_installed_package_is_told_by_its_version_but_torch():
    assert name_of(pytest.raises).endswith(f" {pytest.__version__}")
    assert name_of(nn.Module) == "torch.nn.modules.module.Module"


class Stepping(torch.optim.SGD):
    """An optimizer of the user's own, which torch changes when it is first made."""

    def step(self, closure=None):
        return super().step(closure)


class Inheriting(Stepping):
    """One that takes its step from its parent."""


@pytest.mark.parametrize("kind", [Stepping, Inheriting])
def test_an_optimizer_that_was_made_before_is_the_same(kind):
    before = described(kind)
    kind([torch.zeros(1, requires_grad=True)], lr=0.1)
    assert described(kind) == before


def test_what_holds_itself_ends():
    class Holding(nn.Module):
        def __init__(self):
            super().__init__()
            self.held = {"self": [self]}

        def forward(self, output, targets):
            return functools.reduce(torch.add, [output, targets]).sum()

    assert described(Holding()) == described(Holding())
    assert architecture(nn.Sequential(Holding(), nn.ReLU()))
