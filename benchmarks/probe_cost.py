"""What a probe costs: extra gradients c, and the peak memory of a probing step, for each model.

    python -m benchmarks.probe_cost --device cuda --out FOLDER

c = (probing iteration - ordinary iteration) / gradient, where a gradient is one forward and
backward pass without an update. Measured for probes on the whole batch and on parts of it.
"""

import argparse
import gc
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks.captured import Captured
from benchmarks.loops import EVERY, Differencing, Plain, Probing
from benchmarks.measure import interleaved, peak, record, timed, where
from benchmarks.models import MODELS
from equilibrate import ESGD


class Way(NamedTuple):
    """How a probe is made: on a share of the batch, as a graph, with the gradient shared."""

    name: str
    share: float = 1.0
    captured: bool = False
    joined: bool = True
    closure: bool = False


WAYS = [
    Way("probe, then backward", joined=False),
    Way("probe with backward"),
    Way("half of the batch", share=0.5),
    Way("a quarter", share=0.25),
    Way("an eighth", share=0.125),
    Way("captured", captured=True),
    Way("by closure", closure=True),
]


def _force(loop: Plain, due: bool) -> None:
    for group in loop.optimizer.param_groups:
        group["steps_since_probe"] = EVERY if due else 0


def kinds(loop: Plain) -> dict[str, Any]:
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


def captured(loop: Plain) -> dict[str, Any]:
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
    model: str, way: Way, device: torch.device, small: bool, seconds: float, path: Path
) -> str:
    """Time one way on one model; return a line of the table."""
    torch.manual_seed(0)
    problem = MODELS[model](device, small)
    options = {"lr": 1e-6, "warmup_probes": 3, "fused": True, "capturable": way.captured}
    loop: Plain
    if way.closure:
        loop = Differencing(problem, lambda p: ESGD(p, **options))
    else:
        loop = Probing(problem, lambda p: ESGD(p, **options), way.share, way.joined)
    for _ in range(3):
        loop.iterate()
    calls = captured(loop) if way.captured else kinds(loop)
    memory = {}
    for name, run in calls.items():
        run()
        with peak(device) as peaked:
            timed(run, device)
            memory[name] = peaked()
    found = interleaved(calls, device, seconds)
    time = {name: median(times) for name, times in found.items()}
    cost = (time["probing"] - time["ordinary"]) / time["gradient"]
    record(path, benchmark="probe", model=model, way=way.name, cost=cost, small=small,
           times=found, memory=memory, parameters=problem.count(),
           **where(device))  # fmt: skip
    added = " | ".join(f"{memory[n] / 1e6:.0f}" for n in ("probing", "ordinary"))
    return f"| {model} | {way.name} | {cost:.2f} | {time['gradient'] * 1e3:.3g} | {added} |"


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
    print("| model | how | c | gradient, ms | memory added, probing, MB | ordinary, MB |")
    print("| --- " * 6 + "|")
    ways = [way for way in WAYS if device.type == "cuda" or not way.captured]
    for model in given.models:
        for way in ways:
            try:
                print(measure(model, way, device, small, given.seconds, path), flush=True)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                print(f"| {model} | {way.name} failed: {reason} |", flush=True)
                record(path, benchmark="probe", model=model, way=way.name, error=reason)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
