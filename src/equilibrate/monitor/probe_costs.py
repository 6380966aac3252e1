"""What an iteration takes, in seconds and in bytes at its peak; what `compare_probes` compares."""

import time
from collections.abc import Sequence
from statistics import median

import torch

from equilibrate.monitor.probe_ways import Ways
from equilibrate.monitor.storages import Storages


def peak(ways: Ways, call: str, device: torch.device) -> int:
    """Return the most bytes that an iteration takes beyond those of a model without gradients.

    Gradients that the iteration before has left count, as long as they are kept. Run every way once
    before, so that what lives on from there (an optimizer's state) is not counted.
    """
    ways.clear()
    if device.type == "cpu":
        counted = Storages()
        with counted:
            ways.begin(call)
            ways.run(call)
        return counted.most
    memory = torch.get_device_module(device)
    memory.synchronize(device)
    before = int(memory.memory_allocated(device))
    memory.reset_peak_memory_stats(device)
    ways.begin(call)
    ways.run(call)
    return int(memory.max_memory_allocated(device)) - before


def seconds(
    ways: Ways, calls: Sequence[str], device: torch.device, rounds: int
) -> dict[str, float]:
    """Return the median seconds of every call; each once in every round, so that drift hits all."""
    taken: dict[str, list[float]] = {call: [] for call in calls}
    for _ in range(rounds):
        for call, times in taken.items():
            ways.begin(call)
            _wait(device)
            started = time.perf_counter()
            ways.run(call)
            _wait(device)
            times.append(time.perf_counter() - started)
    return {call: median(times) for call, times in taken.items()}


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.get_device_module(device).synchronize(device)
