"""How ESGD's overhead goes with the size of the model and with probe_every, and what was expected.

    python -m benchmarks.scaling --device cuda --out FOLDER

Transformers of growing size. The overhead at each frequency follows from the times of a probing and
of an ordinary iteration; expected is 1 + c / probe_every, with the c measured on the same model.
"""

import argparse
import gc
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from benchmarks.frequency import FREQUENCIES, overhead
from benchmarks.loops import Plain, Probing
from benchmarks.measure import interleaved, record, where
from benchmarks.models import Problem, Transformer
from benchmarks.probe_cost import kinds
from equilibrate import ESGD

# width, layers, batch
SIZES = [(64, 2, 16), (256, 8, 16), (512, 12, 8), (768, 12, 8), (1024, 24, 4), (1600, 32, 2)]
WORDS, LENGTH = 8192, 512


def problem(width: int, layers: int, batch: int, device: torch.device, small: bool) -> Problem:
    length = 32 if small else LENGTH
    model = Transformer(256 if small else WORDS, length, width, max(1, width // 64), layers)
    model = model.to(device)
    tokens = torch.randint(256, (batch, length + 1), device=device)

    def loss(share: float) -> Any:
        guess = model(tokens[:, :-1]).flatten(0, 1)
        return functional.cross_entropy(guess, tokens[:, 1:].flatten())

    return Problem(model, loss, attends=True)


def measure(
    size: tuple[int, int, int], device: torch.device, small: bool, seconds: float
) -> dict[str, Any]:
    """Return times of a probing and an ordinary iteration, of a gradient and of SGD's iteration."""
    torch.manual_seed(0)
    made = problem(*size, device, small)
    esgd = Probing(made, lambda p: ESGD(p, lr=1e-7, fused=True, warmup_probes=3))
    sgd = Plain(made, lambda p: torch.optim.SGD(p, lr=1e-9))
    for _ in range(2):
        esgd.iterate()
        sgd.iterate()
    calls = kinds(esgd) | {"SGD": sgd.iterate}
    for call in calls.values():
        call()
    times = interleaved(calls, device, seconds)
    return {"parameters": made.count(), "times": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each size")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--largest", type=int, default=len(SIZES), help="how many of the sizes")
    parser.add_argument("--out", type=Path, default=Path("out/speed"))
    given = parser.parse_args()
    device, path = torch.device(given.device), given.out / "scaling.jsonl"
    torch.set_float32_matmul_precision("high")
    small = given.small or device.type == "cpu"
    print("| parameters | " + " | ".join(f"every {n}" for n in FREQUENCIES) + " |")
    print("| --- " * (1 + len(FREQUENCIES)) + "|  (iteration over SGD's, expected in brackets)")
    for size in SIZES[: given.largest]:
        try:
            found = measure(size, device, small, given.seconds)
            record(path, benchmark="scaling", size=size, **found, **where(device))
            cells = ["{:.3f} ({:.3f})".format(*overhead(found, n)) for n in FREQUENCIES]
            print(f"| {found['parameters'] / 1e6:.1f} M | " + " | ".join(cells) + " |", flush=True)
        except Exception as error:
            print(f"| {size} failed: {type(error).__name__}: {str(error)[:200]} |", flush=True)
            record(path, benchmark="scaling", size=size, error=str(error)[:300])
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
