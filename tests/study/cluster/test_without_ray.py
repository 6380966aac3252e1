"""Without Ray everything but `--cluster` works, and that names the extra to install."""

import subprocess
import sys

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ray":
            raise ModuleNotFoundError("No module named 'ray'", name="ray")

import importlib.util
sys.meta_path.insert(0, Blocked())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "ray" else found(name)
from equilibrate.cli import main
"""
FILE = """
import torch
from equilibrate.study import Problem

def data():
    x = torch.linspace(-1, 1, 40).unsqueeze(1)
    return x, x

line = Problem("line", lambda seed: torch.nn.Linear(1, 1), data, torch.nn.functional.mse_loss,
               batch_size=20)
"""
COMPARE = ["compare", "line:line", "--methods", "sgd", "--trials", "1", "--epochs", "1"]
PAPER = ["paper", "figure1", "--quick"]
CLUSTER = ["--cluster", "local", "--out", "elsewhere"]


def test_everything_but_the_cluster_works_and_that_names_the_extra(tmp_path):
    (tmp_path / "line.py").write_text(FILE)
    commands = [COMPARE, [*COMPARE, *CLUSTER], [*PAPER, *CLUSTER]]
    code = f"{BLOCKED}\nprint([main(words) for words in {commands}])"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[0, 1, 1]"
    assert done.stderr.count("pip install 'equilibrate[cluster]'") == 2
    assert not (tmp_path / "elsewhere").exists()
