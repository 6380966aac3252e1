"""The problem file and the command of docs/compare.md, and what the command says."""

from pathlib import Path

from equilibrate.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
FILE = PAGE.split("```python\n")[1].split("```")[0]
COMMAND = PAGE.split("```sh\n")[1].split("```")[0].strip()
FOLDER = Path("out/compare-wave-wave")
SMALL = ["--methods", "sgd", "--trials", "2", "--epochs", "2", "--threads", "1"]


def status_of(arguments):
    try:
        return main(arguments)
    except SystemExit as stop:  # argparse
        return stop.code


def said(capsys):
    return capsys.readouterr().err.strip().splitlines()
