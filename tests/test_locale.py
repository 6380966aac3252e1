"""Where the locale knows ASCII alone: what is written is UTF-8, what is printed never ends it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = sorted((Path(__file__).parents[1] / "src").rglob("*.py"))
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
PROBLEM = """
import torch
from equilibrate.study import Problem

x = torch.linspace(-1, 1, 40).unsqueeze(1)
line = Problem("Übung → β", lambda seed: torch.nn.Linear(1, 1), lambda: (x, x),
               torch.nn.functional.mse_loss, batch_size=20)
"""
SMALL = ["--methods", "sgd", "--trials", "1", "--epochs", "1", "--threads", "1"]
COMMANDS = {
    "inspect": (["inspect", "own:line", "--quick", "--out", "report.html"], "report.html"),
    "compare": (["compare", "own:line", *SMALL, "--out", "o"], "o/table.md"),
}


@pytest.mark.parametrize(("arguments", "written"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_ends_well_and_writes_every_letter(arguments, written, tmp_path):
    (tmp_path / "own.py").write_text(PROBLEM, encoding="utf-8")
    words = [sys.executable, "-m", "equilibrate", *arguments]
    run = subprocess.run(words, cwd=tmp_path, env=os.environ | ASCII, capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    assert written.encode() in run.stdout
    assert "Übung → β" in (tmp_path / written).read_text(encoding="utf-8")


def _without_encoding(path):
    """The lines that read or write text in the locale's encoding."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = getattr(getattr(node, "func", None), "attr", "")
        if name in ("write_text", "read_text") and "encoding" not in {k.arg for k in node.keywords}:
            yield f"{path}:{node.lineno}"


def test_no_text_is_read_or_written_in_the_locale_s_encoding():
    assert [line for path in SOURCES for line in _without_encoding(path)] == []
