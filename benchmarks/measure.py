"""Timing side by side on any device, and records of it: one JSON object a line."""

import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from equilibrate.monitor.storages import Storages
from equilibrate.study.provenance import commit


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


CLOCKS = {"wall": time.perf_counter, "process": time.process_time}
"""What is read: time that passes, or time this process was given (for a machine that is shared)."""


def timed(run: Callable[[], object], device: torch.device, clock: str = "wall") -> float:
    """Return the seconds that one call takes, the device's work included."""
    wait(device)
    start = CLOCKS[clock]()
    run()
    wait(device)
    return CLOCKS[clock]() - start


def interleaved(
    contestants: Mapping[str, Callable[[], object]],
    device: torch.device,
    seconds: float,
    least: int = 3,
    most: int = 200,
    parts: int = 1,
    clock: str = "wall",
) -> dict[str, list[float]]:
    """Time contestants in turn until the time is up; each at least `least` times.

    Every contestant runs once in every round, or in every one of its `parts`, so that drift hits
    all alike. Run each once before: all rounds count.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    started = time.perf_counter()
    for turn in range(1, most + 1):
        took = dict.fromkeys(contestants, 0.0)
        for _ in range(parts):
            for name, run in contestants.items():
                took[name] += timed(run, device, clock)
        for name, seconds_taken in took.items():
            times[name].append(seconds_taken)
        if turn >= least and time.perf_counter() - started > seconds:
            break
    return times


def ratio(times: list[float], base: list[float]) -> tuple[float, float, float]:
    """Return the median over rounds of a ratio, with the quartiles."""
    pairs = [a / b for a, b in zip(times, base, strict=False)]
    if len(pairs) < 2:
        return pairs[0], pairs[0], pairs[0]
    low, middle, high = statistics.quantiles(pairs, n=4, method="inclusive")
    return middle, low, high


@contextmanager
def peak(device: torch.device) -> Iterator[Callable[[], int]]:
    """Watch the memory of tensors; what is handed out tells the most bytes that were added."""
    if device.type != "cuda":
        with Storages() as found:
            yield lambda: found.most
        return
    wait(device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    yield lambda: torch.cuda.max_memory_allocated() - before


def where(device: torch.device) -> dict[str, Any]:
    """Return what a number depends on besides the code."""
    on_gpu = device.type == "cuda"
    name = torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine()
    return {
        "device": name,
        "kind": device.type,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "matmul": torch.get_float32_matmul_precision(),
        "commit": commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def record(path: Path | None, **fields: Any) -> None:
    """Append one record at once, so that a run cut short keeps what it has."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(fields) + "\n")


def records(*paths: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]
