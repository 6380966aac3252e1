"""All GPU benchmarks in one go, each in a process of its own; a part that fails is reported.

    python -m benchmarks.gpu FOLDER [--seconds 480] [--small] [--device cuda]

Writes the records (JSON lines) and what each part prints into FOLDER as it goes, and at the end a
summary of which parts ran, for how long, and how they ended.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

# Part, arguments, share of the time. What the issue of speed turns on comes first.
PARTS: list[tuple[str, list[str], float]] = [
    ("replay", ["-m", "benchmarks.replay"], 0.06),
    ("update", ["-m", "benchmarks.update_bandwidth", "--seconds", "2"], 0.15),
    ("probe", ["-m", "benchmarks.probe_cost", "--seconds", "1"], 0.17),
    ("against", ["-m", "benchmarks.against", "--seconds", "12"], 0.40),
    ("scaling", ["-m", "benchmarks.scaling", "--seconds", "3"], 0.16),
]


def run(name: str, arguments: list[str], seconds: float, folder: Path) -> tuple[str, float]:
    """Run one part, its output into a file and onto the screen; return how it ended."""
    started, log = time.monotonic(), folder / f"{name}.txt"
    command = [sys.executable, "-u", *arguments]
    with log.open("w") as file:
        try:
            code = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, timeout=seconds, check=False
            ).returncode
            ended = "done" if code == 0 else f"FAILED with code {code}"
        except subprocess.TimeoutExpired:
            ended = f"STOPPED after {seconds:.0f} s; what was measured is kept"
    print(f"\n===== {name}\n{_end_of(log)}\n===== {name}: {ended}", flush=True)
    return ended, time.monotonic() - started


def _end_of(log: Path, lines: int = 60) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


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
        ended, took = run(name, arguments + more, seconds, given.folder)
        summary.append(f"| {name} | {ended} | {took:.0f} s |")
        text = "\n".join(["| part | ended | time |", "| --- | --- | --- |", *summary])
        (given.folder / "summary.txt").write_text(text + "\n")
    print("\n" + text)
    sys.exit(any("done" not in line for line in summary))


if __name__ == "__main__":
    main()
