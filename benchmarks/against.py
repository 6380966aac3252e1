"""What an iteration costs with ESGD and with everything a user might take instead.

    python -m benchmarks.against --device cpu
    python -m benchmarks.against --device cuda --out FOLDER

All train the same model side by side in one run, in blocks of 20 iterations (one probe at equal
frequency), in turn. Prints the table of `benchmarks.table`; the records go to FOLDER/against.jsonl.
"""

import argparse
import gc
from pathlib import Path
from typing import Any

import torch

from benchmarks.captured import Captured
from benchmarks.loops import EVERY, Plain
from benchmarks.measure import CLOCKS, interleaved, peak, record, records, timed, where
from benchmarks.models import MODELS, Problem
from benchmarks.rivals import CAPTURED, RIVALS, SLOW, Rival
from benchmarks.table import against


def start(rival: Rival, build: Any, device: torch.device, small: bool) -> tuple[Any, int, Problem]:
    """Return a loop that has made one block of iterations, its peak memory and its problem."""
    torch.manual_seed(0)
    with peak(device) as peaked:
        problem = build(device, small)
        loop: Any = rival.start(problem)
        if rival in CAPTURED:
            loop = Captured(loop)
        for _ in range(2):
            loop.block() if rival in CAPTURED else [loop.iterate() for _ in range(3)]
        return loop, peaked(), problem


def measure(
    model: str,
    rivals: list[Rival],
    device: torch.device,
    small: bool,
    seconds: float,
    path: Path,
    clock: str = "wall",
    leave_out: tuple[str, ...] = (),
) -> None:
    """Time one model with all rivals; whoever cannot start is recorded with the reason."""
    common = {"benchmark": "against", "model": model, "small": small, "clock": clock}
    common |= where(device)
    loops: dict[str, Plain] = {}
    about: dict[str, dict[str, Any]] = {}
    for rival in rivals:
        try:
            loop, most, problem = start(rival, MODELS[model], device, small)
            once = timed(loop.block, device) if device.type == "cuda" else 0.0
            about[rival.name] = {
                "peak": most,
                "state": loop.state_bytes() / problem.count(),
                "hessian": loop.hessian,
                "parameters": problem.count(),
            }
            print(f"{model}: {rival.name} has started, {once / EVERY * 1e3:.3g} ms", flush=True)
            loops[rival.name] = loop
        except Exception as error:  # reported, and the others are measured
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            record(path, **common, method=rival.name, error=reason)
            print(f"{model}: {rival.name} left out: {reason}", flush=True)
            gc.collect()
    found = _race(loops, device, seconds, clock)
    each = {name: [t / EVERY for t in times] for name, times in found.items()}
    for name, times in each.items():
        base = each["SGD, captured" if "captured" in name else "SGD"]
        if name not in leave_out:
            record(path, **common, method=name, times=times, base=base, **about[name])


def _race(
    loops: dict[str, Any], device: torch.device, seconds: float, clock: str
) -> dict[str, list[float]]:
    """Time blocks in turn; on a CPU iteration by iteration, which nothing has to wait for."""
    if device.type == "cuda":
        return interleaved({name: loop.block for name, loop in loops.items()}, device, seconds)
    calls = {name: loop.iterate for name, loop in loops.items()}
    return interleaved(calls, device, seconds, parts=EVERY, clock=clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--methods", nargs="+", default=None, help="all, if not given")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each model")
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--small", action="store_true", help="the small models, also on a GPU")
    size.add_argument("--full", action="store_true", help="the large models, also on a CPU")
    parser.add_argument("--out", type=Path, default=Path("out/speed"))
    given = parser.parse_args()
    device = torch.device(given.device)
    torch.set_float32_matmul_precision("high")
    path = given.out / "against.jsonl"
    chosen = RIVALS + (CAPTURED if device.type == "cuda" else [])
    rivals = [r for r in chosen if given.methods is None or r.name in given.methods]
    slow = [r for r in SLOW if given.methods is None or r.name in given.methods]
    small = given.small or (device.type == "cpu" and not given.full)
    for model in given.models:
        measure(model, rivals, device, small, given.seconds, path, given.clock)
        _forget(device)
        print(against([r for r in records(path) if r["model"] == model]), flush=True)
    for model in given.models if slow else []:
        both = [RIVALS[0], *slow]
        short = given.seconds / 4
        measure(model, both, device, small, short, path, given.clock, leave_out=("SGD",))
        _forget(device)
    print(against(records(path)), flush=True)


def _forget(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
