"""All GPU benchmarks in one go, each in a process of its own; a part that fails is reported.

    python -m benchmarks.gpu FOLDER [--seconds 480] [--small] [--device cuda]

Run it in the root of the repository. It writes records (JSON lines) and what the parts print into
FOLDER as it goes, and a summary: which parts ran, for how long, how they ended. The tests need
pytest and hypothesis, which may lie in `.rivals` too.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

TESTS = ["tests/optim/test_capture.py", "tests/kernels", "tests/rules/test_fast_paths.py"]

# Part, arguments, share of the time. What the issue of speed turns on comes first.
PARTS: list[tuple[str, list[str], float]] = [
    ("replay", ["-m", "benchmarks.replay"], 0.06),
    ("update", ["-m", "benchmarks.update_bandwidth", "--seconds", "2"], 0.15),
    ("probe", ["-m", "benchmarks.probe_cost", "--seconds", "1"], 0.17),
    ("against", ["-m", "benchmarks.against", "--seconds", "12"], 0.40),
    ("scaling", ["-m", "benchmarks.scaling", "--seconds", "3"], 0.16),
    ("tests", ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", *TESTS], 0.1),
]


def run(name: str, arguments: list[str], seconds: float, folder: Path) -> tuple[str, float]:
    """Run one part, its output into one file for all and onto the screen; return how it ended."""
    started, log = time.monotonic(), folder / "log.txt"
    command, paths = [sys.executable, "-u", *arguments], ["src", ".", ".rivals"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    with log.open("a+") as file:
        begin = file.seek(0, os.SEEK_END)
        try:
            code = subprocess.run(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
                env=environment,
            ).returncode
            ended = "done" if code == 0 else f"FAILED with code {code}"
        except subprocess.TimeoutExpired:
            ended = f"STOPPED after {seconds:.0f} s; what was measured is kept"
        file.seek(begin)
        lines = file.read().splitlines()[-60:]
    print(f"\n===== {name}\n" + "\n".join(lines) + f"\n===== {name}: {ended}", flush=True)
    return ended, time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--parts", nargs="+", default=[name for name, *_ in PARTS])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    more = ["--device", given.device, "--out", str(given.folder)]
    more += ["--small"] if given.small else []
    chosen = [part for part in PARTS if part[0] in given.parts]
    whole = sum(share for *_, share in chosen)
    deadline, summary = time.monotonic() + given.seconds, []
    for name, arguments, share in chosen:
        left = deadline - time.monotonic()
        # What earlier parts have not used is there for this one.
        seconds = max(20.0, left * share / whole)
        whole -= share
        own = arguments if name == "tests" else arguments + more
        ended, took = run(name, own, seconds, given.folder)
        summary.append(f"| {name} | {ended} | {took:.0f} s |")
        text = "\n".join(["| part | ended | time |", "| --- | --- | --- |", *summary])
        (given.folder / "summary.txt").write_text(text + "\n")
    print("\n" + text)
    sys.exit(any("done" not in line for line in summary))


if __name__ == "__main__":
    main()
