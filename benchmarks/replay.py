"""Do CUDA graphs replay what eager iterations do? Every model, bit by bit or how far apart.

    python -m benchmarks.replay --out FOLDER

Two equal trainings from the same state: one eager, one replayed, the same number of iterations,
probing ones included. Also whether the fused path follows the plain one. On a CPU, without graphs,
the second comparison alone is made. Kernels that add up in whatever order they finish are switched
off: what is asked is whether our own way changes a bit, not whether cuDNN's does.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import torch

from benchmarks.loops import EVERY, Probing
from benchmarks.measure import record, where
from benchmarks.models import MODELS
from equilibrate import ESGD

ROUNDS = 2


def _loop(model: str, device: torch.device, small: bool, **options: Any) -> Probing:
    torch.manual_seed(0)
    problem = MODELS[model](device, small)
    return Probing(problem, lambda p: ESGD(p, lr=1e-3, probe_every=EVERY, **options))


def _flat(loop: Probing) -> torch.Tensor:
    return torch.cat([p.detach().flatten().double() for p in loop.problem.parameters()])


def _apart(one: torch.Tensor, other: torch.Tensor, start: torch.Tensor) -> float:
    return float((one - other).norm() / (other - start).norm())


def compare(model: str, device: torch.device, small: bool) -> dict[str, Any]:
    """Return how far apart the ways end, relative to the way they went."""
    plain = _loop(model, device, small)
    start = _flat(plain)
    fused = _loop(model, device, small, fused=True)
    again = _loop(model, device, small, fused=True)
    for _ in range(ROUNDS * EVERY + 1):
        for loop in (plain, fused, again):
            loop.iterate()
    found = {
        "fused from plain": _apart(_flat(fused), _flat(plain), start),
        "fused from itself": _apart(_flat(again), _flat(fused), start),
    }
    if device.type == "cuda":
        found |= _replayed(model, device, small)
    return found


def _replayed(model: str, device: torch.device, small: bool) -> dict[str, float]:
    """Compare replays with as many eager iterations, after the same first ones."""
    from benchmarks.captured import Captured

    eager = _loop(model, device, small, fused=True, capturable=True)
    loop = _loop(model, device, small, fused=True, capturable=True)
    start = _flat(loop)
    graphs = Captured(loop)
    for _ in range(loop.steps - 2):  # a capture counts as a step on the host, and does nothing
        eager.iterate()
    before = _apart(_flat(loop), _flat(eager), start)
    for _ in range(ROUNDS):
        graphs.block()
        for _ in range(EVERY):
            eager.iterate()
    torch.cuda.synchronize()
    return {
        "before the capture": before,
        "replayed from eager": _apart(_flat(loop), _flat(eager), start),
        "equal to the bit": float(torch.equal(_flat(loop), _flat(eager))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out/speed"))
    given = parser.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.set_float32_matmul_precision("high")  # as in the other benchmarks
    torch.backends.cuda.enable_flash_sdp(False)  # these add up in whatever order too
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    device = torch.device(given.device)
    small = given.small or device.type == "cpu"
    for model in given.models:
        try:
            found = compare(model, device, small)
            print(model, {k: f"{v:.2e}" for k, v in found.items()}, flush=True)
            record(given.out / "replay.jsonl", benchmark="replay", model=model, **found,
                   **where(device))  # fmt: skip
        except Exception as error:
            print(f"{model} failed: {type(error).__name__}: {str(error)[:400]}", flush=True)
            record(
                given.out / "replay.jsonl", benchmark="replay", model=model, error=str(error)[:400]
            )


if __name__ == "__main__":
    main()
