"""The update alone on a GPU: what share of the copy bandwidth it reaches, and against fused AdamW.

    python -m benchmarks.update_bandwidth --out FOLDER

The update must read parameter, gradient and diagonal and write the parameter, 16 bytes an element
in float32; with momentum 24, and 32 where the growth of the update is limited. The copy is measured
here, a large tensor to another. Also timed: a compiled foreach in the place of the Triton kernel,
drawing the signs and folding a product. The rows "captured" replay ten steps as one CUDA graph:
what the kernels take where no host is waited for.
"""

import argparse
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import interleaved, record, where
from benchmarks.models import MODELS
from equilibrate import ESGD
from equilibrate.rules import fused

SIZES = {"one tensor of 45 M": [45_000_000], "one tensor of 250 M": [250_000_000]}
REPEAT = 50


def shapes_of(model: str, device: torch.device, small: bool) -> list[torch.Size]:
    return [p.shape for p in MODELS[model](device, small).parameters()]


def _ready(optimizer: Any, parameters: list[Tensor]) -> Any:
    """Give every parameter a gradient, and ESGD a diagonal, without any model."""
    if isinstance(optimizer, ESGD):
        vectors = [torch.randn_like(p) for p in parameters]
        optimizer.observe(vectors, vectors)
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer.step()
    if isinstance(optimizer, ESGD):
        optimizer.param_groups[0]["steps_since_probe"] = -(10**9)
    return optimizer


def contestants(parameters: list[Tensor]) -> dict[str, Any]:
    """Return a step of each optimizer over the same parameters and gradients."""
    makes = {
        "SGD": lambda p: torch.optim.SGD(p, lr=1e-9),
        "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=1e-9, fused=True),
        "ESGD, foreach": lambda p: ESGD(p, lr=1e-9),
        "ESGD, fused": lambda p: ESGD(p, lr=1e-9, fused=True),
        "ESGD, fused, momentum": lambda p: _with_momentum(p, growth_limit=None),
        "ESGD, fused, momentum, growth": lambda p: _with_momentum(p),
    }
    made = {name: _ready(make(parameters), parameters) for name, make in makes.items()}
    runs = {name: _repeated(optimizer.step) for name, optimizer in made.items()}
    esgd = made["ESGD, fused"]
    if len(parameters) < 20:  # building takes long for more
        runs["ESGD, compiled foreach"] = _repeated(lambda: _compiled(esgd, parameters))
    runs["drawing signs"] = _repeated(esgd._draw)
    if parameters[0].is_cuda:
        runs |= _captured(parameters)
    products = {p: torch.randn_like(p) for p in parameters}
    runs["folding a product"] = _repeated(lambda: esgd._fold_on_device(products))
    return runs


def _captured(parameters: list[Tensor]) -> dict[str, Any]:
    """Return replays of ten steps, for optimizers that can be captured."""
    makes = {
        "AdamW, fused, captured": lambda p: torch.optim.AdamW(
            p, lr=1e-9, fused=True, capturable=True
        ),
        "ESGD, fused, captured": lambda p: ESGD(p, lr=1e-9, fused=True, capturable=True),
        "ESGD, fused, momentum, growth, captured": lambda p: _with_momentum(p, capturable=True),
    }
    replays: dict[str, Any] = {}
    for name, make in makes.items():
        optimizer = _ready(make(parameters), parameters)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            optimizer.step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(REPEAT):
                optimizer.step()
        replays[name] = partial(_replay, graph, optimizer)
    return replays


def _replay(graph: Any, optimizer: Any) -> None:
    """Replay; the optimizer is kept, for the graph writes into its state."""
    graph.replay()


def _with_momentum(parameters: list[Tensor], **options: Any) -> ESGD:
    return ESGD(parameters, lr=1e-9, fused=True, momentum=0.9, **options)


def _compiled(optimizer: ESGD, parameters: list[Tensor]) -> None:
    """Run the alternative to the kernel on the same state."""
    states = [optimizer.state[p]["diagonal"] for p in parameters]
    gradients = [p.grad for p in parameters]
    numbers = optimizer._numbers(0, optimizer._held(0, parameters))
    options = {"nesterov": False, "maximize": False, **numbers}
    with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=64):
        fused.compiled()(parameters, gradients, states, None, **options)


def _repeated(run: Any) -> Any:
    def several() -> None:
        for _ in range(REPEAT):
            run()

    return several


BYTES = {"copy": 8, "SGD": 12, "AdamW, fused": 28, "AdamW, fused, captured": 28,
         "ESGD, fused, momentum": 24, "ESGD, fused, momentum, growth": 32,
         "ESGD, fused, momentum, growth, captured": 32, "drawing signs": 4,
         "folding a product": 16}  # fmt: skip


def measure(name: str, shapes: list[Any], device: Any, seconds: float, path: Path) -> None:
    parameters: list[Tensor] = [torch.nn.Parameter(torch.randn(s, device=device)) for s in shapes]
    count = sum(p.numel() for p in parameters)
    source = torch.randn(max(count, 1), device=device)
    target = torch.empty_like(source)
    runs = {"copy": _repeated(lambda: target.copy_(source))} | contestants(parameters)
    for run in runs.values():
        run()
    found = interleaved(runs, device, seconds)
    copied = 8 * count / (median(found["copy"]) / REPEAT)
    adamw = median(found["AdamW, fused"])
    print(
        f"\n{name}: {count / 1e6:.0f} M elements in {len(shapes)} tensors; "
        f"copy {copied / 1e12:.2f} TB/s"
    )
    print("| what | microseconds | TB/s | of the copy | over AdamW, fused |\n" + "| --- " * 5 + "|")
    for method, times in found.items():
        each = median(times) / REPEAT
        rate = BYTES.get(method, 16) * count / each
        shares = f"{rate / copied:.0%} | {median(times) / adamw:.2f}"
        print(f"| {method} | {each * 1e6:.0f} | {rate / 1e12:.2f} | {shares} |", flush=True)
        record(path, benchmark="update", model=name, method=method, elements=count,
               tensors=len(shapes), bytes=BYTES.get(method, 16),
               times=[t / REPEAT for t in times], **where(device))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each set of tensors")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out/speed"))
    given = parser.parse_args()
    device, path = torch.device(given.device), given.out / "update.jsonl"
    sets = {m: shapes_of(m, device, given.small) for m in MODELS if m != "sine field"}
    sets |= {n: [s // 1000 for s in sizes] if given.small else sizes for n, sizes in SIZES.items()}
    for name, shapes in sets.items():
        try:
            measure(name, shapes, device, given.seconds, path)
        except Exception as error:
            print(f"{name} failed: {type(error).__name__}: {error}", flush=True)
            record(path, benchmark="update", model=name, error=str(error)[:300], **where(device))


if __name__ == "__main__":
    main()
