"""What the package promises as a whole: light to import, layered, documented."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import equilibrate

SOURCE = Path(equilibrate.__file__).parent
HEAVY = ("matplotlib", "numpy", "scipy", "ray", "pandas", "equilibrate.study", "equilibrate.paper",
         "equilibrate.wins", "equilibrate.rivals", "equilibrate.monitor",
         "equilibrate.inspect")  # fmt: skip

# Each room may import only those to its right, and torch.
LAYERS = ["__main__", "cli", "inspect", "wins", "paper", "study", "rivals", "monitor", "attention",
          "statistics", "optim", "distributed", "rules", "diagonals", "exact", "curvature",
          "kernels", "seeding"]  # fmt: skip


def test_import_loads_torch_and_nothing_heavier():
    code = "import torch, sys; before = set(sys.modules); import equilibrate; "
    code += "print(*sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert [m for m in loaded if m.startswith(HEAVY)] == []


def test_the_package_runs_as_the_command_and_tells_its_version():
    code = [sys.executable, "-m", "equilibrate", "--version"]
    run = subprocess.run(code, capture_output=True, text=True, check=True)
    assert run.stdout == f"equilibrate {equilibrate.__version__}\n"


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return {n.split(".")[1] for n in names if n.startswith("equilibrate.")}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.stem))
def test_dependencies_point_one_way(path):
    room = _room(path)
    if room == "__init__":
        return
    allowed = LAYERS[LAYERS.index(room) :]
    assert _imports(path) & set(LAYERS) <= set(allowed)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.stem))
def test_files_and_functions_stay_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 250
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            assert node.end_lineno - first.lineno < 50, node.name


def test_every_public_name_is_documented_with_an_example():
    for name in equilibrate.__all__:
        thing = getattr(equilibrate, name)
        if callable(thing):
            assert thing.__doc__, name
            assert ">>>" in thing.__doc__ or name == "Estimate", name
