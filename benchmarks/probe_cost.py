"""What a probe costs: extra gradients c, and the peak memory of a probing step, for each model.

    python -m benchmarks.probe_cost --device cuda --out FOLDER

c = (probing iteration - ordinary iteration) / gradient, where a gradient is one forward and
backward pass without an update. Measured for probes on the whole batch and on parts of it.
"""

import argparse
import gc
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.captured import Captured
from benchmarks.measure import interleaved, peak, record, timed, where
from benchmarks.models import MODELS
from benchmarks.rivals import EVERY, Probing
from equilibrate import ESGD

SHARES = (1.0, 0.5, 0.25, 0.125)


def _force(loop: Probing, due: bool) -> None:
    for group in loop.optimizer.param_groups:
        group["steps_since_probe"] = EVERY if due else 0


def kinds(loop: Probing) -> dict[str, Any]:
    """Return a probing iteration, an ordinary one and a gradient as calls."""

    def iterate(due: bool) -> None:
        _force(loop, due)
        loop.iterate()

    def gradient() -> None:
        loop.problem.loss(1.0).backward()
        loop.optimizer.zero_grad()

    return {
        "probing": lambda: iterate(True),
        "ordinary": lambda: iterate(False),
        "gradient": gradient,
    }


def captured(loop: Probing) -> dict[str, Any]:
    """The same as graphs; the gradient too."""
    graphs = Captured(loop)

    def gradient() -> None:
        loop.problem.loss(1.0).backward()
        loop.optimizer.zero_grad()

    pass_ = torch.cuda.CUDAGraph()
    with torch.cuda.graph(pass_):
        gradient()
    assert graphs.probing is not None
    replays = {"probing": graphs.probing, "ordinary": graphs.ordinary, "gradient": pass_}
    return {name: graph.replay for name, graph in replays.items()}


def measure(
    model: str, share: float, device: torch.device, small: bool, seconds: float, path: Path,
    as_graphs: bool,
) -> str:  # fmt: skip
    torch.manual_seed(0)
    problem = MODELS[model](device, small)
    options = {"fused": True, "capturable": as_graphs}
    loop = Probing(problem, lambda p: ESGD(p, lr=1e-6, warmup_probes=3, **options), share)
    for _ in range(3):
        loop.iterate()
    calls = captured(loop) if as_graphs else kinds(loop)
    memory = {}
    for name, run in calls.items():
        run()
        peaked = peak(device)
        timed(run, device)
        memory[name] = peaked()
    found = interleaved(calls, device, seconds)
    time = {name: median(times) for name, times in found.items()}
    cost = (time["probing"] - time["ordinary"]) / time["gradient"]
    record(path, benchmark="probe", model=model, share=share, captured=as_graphs, cost=cost,
           small=small, times=found, memory=memory, parameters=problem.count(),
           **where(device))  # fmt: skip
    added = " | ".join(f"{memory[n] / 1e6:.0f}" for n in ("probing", "ordinary"))
    how = "captured" if as_graphs else "eager"
    return f"| {model} | {how} | {share:g} | {cost:.2f} | {time['gradient'] * 1e3:.3g} | {added} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out/speed"))
    given = parser.parse_args()
    device, path = torch.device(given.device), given.out / "probe.jsonl"
    torch.set_float32_matmul_precision("high")
    small = given.small or device.type == "cpu"
    print("| model | how | share of the batch | c | gradient, ms | peak, probing | ordinary, MB |")
    print("| --- " * 7 + "|")
    ways = [(share, False) for share in SHARES]
    ways += [(1.0, True)] if device.type == "cuda" else []
    for model in given.models:
        for share, as_graphs in ways:
            try:
                print(
                    measure(model, share, device, small, given.seconds, path, as_graphs), flush=True
                )
            except Exception as error:
                print(
                    f"| {model} | {share:g} failed: {type(error).__name__}: {str(error)[:200]} |",
                    flush=True,
                )
                record(path, benchmark="probe", model=model, share=share, error=str(error)[:300])
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
